// SPDX-License-Identifier: MIT
// Measures operations on ordinary vectors after `share` beside the same ones on shared buffers, in turns.
//   share_cost [RANKS] [ROUNDS] [MEBIBYTES]     (2 9 16: up to 16 MiB)
//
// Every round measures both, in alternating order. Prints the median times, and the median of the rounds' ratios.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

#include <hfcomm/comm.hpp>

#include "benchmark.hpp"
#include "hfcomm_library.hpp"
#include "machine.hpp"
#include "span_operations.hpp"

namespace {

constexpr double tolerated_ratio = 1.05;

template <class Library>
std::vector<bench::operation> operations(const bench::peers& others) {
  const bench::span_operations<Library> spans(others);
  const std::string type = "float32";
  return {spans.template all_reduce_in_place<float>(type), spans.template broadcast<float>(type),
          spans.template all_gather<float>(type),          spans.template gather<float>(type),
          spans.template reduce_scatter<float>(type),      spans.template all_to_all<float>(type)};
}

struct times {
  std::vector<double> shared;
  std::vector<double> registered;
};

/// The medians of each round. Throws where data was wrong.
times measure(const bench::operation& shared, const bench::operation& registered, std::size_t bytes, int rounds,
              const bench::peers& others) {
  const bench::benchmark subjects[] = {shared.make(bytes), registered.make(bytes)};
  times found;
  std::uint64_t iteration = 0;
  for (int turn = 0; turn < 2 * rounds; ++turn) {
    const bool is_registered = turn % 4 == 1 || turn % 4 == 2;  // shared, registered, registered, shared
    bench::effort work;
    work.warmup = turn < 2 ? 20 : 4;
    work.line_ms = 5;
    work.least_iterations = 8;
    const bench::result one = bench::measurement(subjects[is_registered ? 1 : 0], others, work, iteration).run();
    iteration += 100'000;
    if (one.wrong != 0) {
      throw std::runtime_error(one.operation + ": " + std::to_string(one.wrong) + " elements were wrong");
    }
    (is_registered ? found.registered : found.shared).push_back(one.median_us);
  }
  return found;
}

int run_rank(int rounds, std::size_t largest) {
  if (hfcomm::local_size() <= bench::allowed_cores()) {
    bench::bind_to_core(hfcomm::local_rank());
  }
  const bench::peers others = bench::peers_of_world();
  const auto shared = operations<bench::library_on_shared_memory>(others);
  const auto registered = operations<bench::library_on_registered_memory>(others);
  std::vector<double> all;
  for (std::size_t index = 0; index < shared.size(); ++index) {
    for (std::size_t bytes = std::size_t{256} << 10; bytes <= largest; bytes *= 4) {
      const times found = measure(shared[index], registered[index], bytes, rounds, others);
      std::vector<double> ratios;
      for (std::size_t round = 0; round < found.shared.size(); ++round) {
        ratios.push_back(found.registered[round] / found.shared[round]);
      }
      all.push_back(bench::quantile(ratios, 0.5));
      if (hfcomm::rank() == 0) {
        std::printf("%-20s %6zu KiB   shared buffer %9.2f us   after share %9.2f us   ratio %.3f\n",
                    shared[index].name.c_str(), bytes >> 10, bench::quantile(found.shared, 0.5),
                    bench::quantile(found.registered, 0.5), all.back());
        std::fflush(stdout);
      }
    }
  }
  hfcomm::print_main(
      "median ", bench::quantile(all, 0.5), ", highest ", bench::quantile(all, 1), "; above ", tolerated_ratio, ": ",
      std::count_if(all.begin(), all.end(), [](double ratio) { return ratio > tolerated_ratio; }), " of ", all.size());
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  const int ranks = count > 1 ? std::atoi(arguments[1]) : 2;
  const int rounds = count > 2 ? std::atoi(arguments[2]) : 9;
  const int mebibytes = count > 3 ? std::atoi(arguments[3]) : 16;
  if (ranks < 1 || rounds < 1 || mebibytes < 1 || count > 4) {
    std::fprintf(stderr, "usage: share_cost [RANKS] [ROUNDS] [MEBIBYTES]\n");
    return 2;
  }
  return hfcomm::launch(ranks, [&] { return run_rank(rounds, static_cast<std::size_t>(mebibytes) << 20); });
}
