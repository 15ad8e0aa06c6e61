// SPDX-License-Identifier: MIT
// An upper limit for the cost of hfcomm's checks: signatures, call sites, deadlines, lost ranks. Compares a bare
// barrier with one flag for each rank in shared memory, and hfcomm's barrier, in turns. Prints the median nanoseconds
// of each.
//   checks [ranks] [barriers in a turn]     (2 20000)

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <span>
#include <vector>

#include <sys/mman.h>

#include <hfcomm/comm.hpp>
#include <hfcomm/machine/waiting.hpp>

#include "machine.hpp"

namespace {

constexpr int turns = 21;

struct alignas(128) flag {
  std::atomic<std::uint64_t> barriers{0};
};

/// Waits as hfcomm does, so that the difference is not one in waiting. (It sleeps after a millisecond; this goes on.)
void bare_barrier(std::span<flag> flags, int rank, std::uint64_t number, const hfcomm::detail::spin_limits& limits) {
  flags[static_cast<std::size_t>(rank)].barriers.store(number);
  auto other = flags.begin();
  const auto all_have_come = [&] {
    while (other != flags.end() && other->barriers.load() >= number) {
      ++other;
    }
    return other == flags.end();
  };
  while (!hfcomm::detail::wait_briefly(limits, all_have_come)) {
  }
}

template <class Barrier>
double nanoseconds_of(int barriers, Barrier&& number) {
  const auto start = std::chrono::steady_clock::now();
  for (int index = 0; index < barriers; ++index) {
    number();
  }
  const std::chrono::duration<double, std::nano> time = std::chrono::steady_clock::now() - start;
  return time.count() / barriers;
}

void compare(std::span<flag> flags, int barriers) {
  const int rank = hfcomm::rank();
  const int cores = bench::allowed_cores();
  const bool own_cores = hfcomm::world_size() <= cores;
  hfcomm::barrier();
  if (own_cores) {
    bench::bind_to_core(rank);
  }
  const auto limits = hfcomm::detail::spin_limits::of(own_cores);
  std::uint64_t met = 0;
  std::array<std::vector<double>, 3> times;
  for (int turn = 0; turn < turns; ++turn) {
    times[0].push_back(nanoseconds_of(barriers, [&] { bare_barrier(flags, rank, ++met, limits); }));
    times[1].push_back(nanoseconds_of(barriers, [] { hfcomm::barrier(); }));
    std::array<float, 2> sums{};
    times[2].push_back(nanoseconds_of(barriers, [&] { hfcomm::all_reduce(sums); }));
  }
  if (rank == 0) {
    std::printf("%d ranks on %d cores, ns:", hfcomm::world_size(), cores);
    const std::array names{"bare flags", "barrier", "all_reduce of 8 bytes"};
    for (std::size_t index = 0; index < times.size(); ++index) {
      std::nth_element(times[index].begin(), times[index].begin() + turns / 2, times[index].end());
      std::printf("%s %s %.0f", index == 0 ? "" : ",", names[index], times[index][turns / 2]);
    }
    std::puts("");
  }
}

}  // namespace

int main(int count, char** arguments) {
  const int ranks = count > 1 ? std::atoi(arguments[1]) : 2;
  const int barriers = count > 2 ? std::atoi(arguments[2]) : 20'000;
  if (ranks < 1 || barriers < 1) {
    std::fputs("checks [ranks] [barriers in a turn]\n", stderr);
    return 2;
  }
  const auto size = static_cast<std::size_t>(ranks) * sizeof(flag);
  void* memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    std::perror("checks: mmap");
    return 1;
  }
  auto* flags = static_cast<flag*>(memory);
  std::uninitialized_default_construct_n(flags, ranks);
  return hfcomm::launch(ranks, [&] { compare({flags, static_cast<std::size_t>(ranks)}, barriers); });
}
