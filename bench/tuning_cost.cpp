// SPDX-License-Identifier: MIT
// Measures what finding the quickest ways costs in the first second of a group.
//   tuning_cost [RANKS] [ROUNDS]
//
// A new group that knows nothing does a mix of operations for a second. Another new group, which knows what the first
// one has found, does the same operations. The difference is the cost.

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <span>
#include <string>
#include <utility>
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
    static constexpr std::size_t counts[] = {512, 1024, 4096, 16'384, 65'536, 262'144, 1'048'576};
    const std::size_t count = counts[static_cast<std::size_t>(number) % std::size(counts)];
    const std::span<float> data(data_.data(), count);
    if (number % 3 == 0) {
      hfcomm::broadcast(data, 0, group);
    } else {
      hfcomm::all_reduce(data, hfcomm::reduce_op::max, group);
    }
  }

 private:
  std::vector<float> data_ = std::vector<float>(1'048'576, 1.0F);
};

/// Runs operations for a second, or `calls` of them where that is not 0. Returns their number and the time.
std::pair<int, double> run(operation_mix& mix, int calls) {
  constexpr int block = 16;  // after which rank 0 says whether to go on
  const hfcomm::process_group group = hfcomm::world().split(0);
  hfcomm::barrier(group);
  const auto begin = std::chrono::steady_clock::now();
  const auto elapsed = [&] { return seconds(std::chrono::steady_clock::now() - begin).count(); };
  int done = 0;
  for (bool goes_on = true; goes_on;) {
    for (int number = 0; number < block; ++number) {
      mix.run(done++, group);
    }
    goes_on = calls != 0 ? done < calls : elapsed() < 1;
    hfcomm::broadcast(goes_on, 0, group);
  }
  return {done, elapsed()};
}

int measure(int rounds) {
  if (hfcomm::local_size() <= bench::allowed_cores()) {
    bench::bind_to_core(hfcomm::local_rank());
  }
  operation_mix mix;
  static_cast<void>(run(mix, 200));  // memory is touched for the first time
  std::vector<double> costs;
  for (int round = 0; round < rounds; ++round) {
    tuning_table::of_process().reset(tuning_mode::brief);
    const auto [calls, first] = run(mix, 0);
    const std::string table = "tuning-cost-" + std::to_string(::getpid());
    hfcomm::save_tuning(table);
    hfcomm::load_tuning(table);  // nothing is tried any more
    std::remove(table.c_str());
    const auto [again, second] = run(mix, calls);
    costs.push_back(100 * (first - second) / first);
    hfcomm::print_main(calls, " operations in ", first, " s; ", second, " s where the ways are known: ", costs.back(),
                       " %");
  }
  std::sort(costs.begin(), costs.end());
  hfcomm::print_main("median ", costs[costs.size() / 2], " %");
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  const int ranks = count > 1 ? std::atoi(arguments[1]) : 2;
  const int rounds = count > 2 ? std::atoi(arguments[2]) : 7;
  if (ranks < 1 || rounds < 1 || count > 3) {
    std::fprintf(stderr, "usage: tuning_cost [RANKS] [ROUNDS]\n");
    return 2;
  }
  return hfcomm::launch(ranks, [rounds] { return measure(rounds); });
}
