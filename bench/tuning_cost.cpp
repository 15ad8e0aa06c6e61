// SPDX-License-Identifier: MIT
// Measures what finding the quickest ways costs in the first seconds of a group.
//   tuning_cost [RANKS] [ROUNDS] [SECONDS]
//
// A new group that knows nothing does a mix of operations of 20 classes for so many seconds (1). Another one, which
// keeps the ways that a group has found before, does the same operations, some of each group in turns. The difference
// is the cost. It can be negative, where the first one finds better ways.

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include <unistd.h>

#include <hfcomm/comm.hpp>
#include <hfcomm/engine/shared_memory/ways.hpp>
#include <hfcomm/group/tuning.hpp>

#include "machine.hpp"

namespace {

using seconds = std::chrono::duration<double>;
using hfcomm::engines::tuning_mode;
using hfcomm::engines::tuning_table;

/// The operations of a training step and around it: small ones often, large ones now and then.
class operation_mix {
 public:
  void run(int number, const hfcomm::process_group& group) {
    constexpr int sizes = 10;  // 8 KiB to 4 MiB
    const std::span<float> data(data_.data(), std::size_t{2048} << (number % sizes));
    if (number % 3 == 0) {
      hfcomm::broadcast(data, 0, group);
    } else {
      hfcomm::all_reduce(data, hfcomm::reduce_op::max, group);
    }
  }

 private:
  std::vector<float> data_ = std::vector<float>(1'048'576, 1.0F);
};

/// Does some operations. Returns the time.
seconds run(operation_mix& mix, const hfcomm::process_group& group, int first, int count) {
  hfcomm::barrier(group);
  const auto begin = std::chrono::steady_clock::now();
  for (int number = first; number < first + count; ++number) {
    mix.run(number, group);
  }
  hfcomm::barrier(group);
  return std::chrono::steady_clock::now() - begin;
}

/// Returns a group that keeps the ways of the table, all of which it has used.
hfcomm::process_group make_knowing_group(operation_mix& mix) {
  const std::string table = "tuning-cost-" + std::to_string(::getpid());
  hfcomm::save_tuning(table);
  hfcomm::load_tuning(table);  // nothing is tried any more
  std::remove(table.c_str());
  hfcomm::process_group group = hfcomm::world().split(0);
  static_cast<void>(run(mix, group, 0, 300));
  return group;
}

int measure(int rounds, seconds duration) {
  if (hfcomm::local_size() <= bench::allowed_cores()) {
    bench::bind_to_core(hfcomm::local_rank());
  }
  operation_mix mix;
  static_cast<void>(run(mix, hfcomm::world().split(0), 0, 20'000));
  std::vector<double> costs;
  for (int round = 0; round < rounds; ++round) {
    const hfcomm::process_group knowing = make_knowing_group(mix);
    tuning_table::of_process().reset(tuning_mode::brief);
    const hfcomm::process_group finding = hfcomm::world().split(0);
    constexpr int block = 30;  // operations of a turn
    int done = 0;
    seconds finds(0);
    seconds knows(0);
    for (bool goes_on = true; goes_on; done += block) {
      const bool is_first = done / block % 2 == 0;
      finds += is_first ? run(mix, finding, done, block) : seconds(0);
      knows += run(mix, knowing, done, block);
      finds += is_first ? seconds(0) : run(mix, finding, done, block);
      goes_on = finds < duration;
      hfcomm::broadcast(goes_on, 0);
    }
    costs.push_back(100 * (finds - knows) / finds);
    hfcomm::print_main(done, " operations in ", finds.count(), " s; ", knows.count(),
                       " s where the ways are known: ", costs.back(), " %");
  }
  std::sort(costs.begin(), costs.end());
  hfcomm::print_main("median ", costs[costs.size() / 2], " %");
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  const int ranks = count > 1 ? std::atoi(arguments[1]) : 2;
  const int rounds = count > 2 ? std::atoi(arguments[2]) : 7;
  const int duration = count > 3 ? std::atoi(arguments[3]) : 1;
  if (ranks < 1 || rounds < 1 || duration < 1 || count > 4) {
    std::fprintf(stderr, "usage: tuning_cost [RANKS] [ROUNDS] [SECONDS]\n");
    return 2;
  }
  return hfcomm::launch(ranks, [&] { return measure(rounds, seconds(duration)); });
}
