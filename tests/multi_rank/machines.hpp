// SPDX-License-Identifier: MIT
#pragma once

#include "ranks.hpp"

#include <concepts>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <span>
#include <vector>

#include "../periodic.hpp"

/// Helpers of the tests with ranks on several pretended machines.
namespace multi_rank {

/// The number of ranks of each machine.
using machine_layout = std::vector<int>;

using periodic::period_of;
using periodic::repeat_period;

/// Returns the number of ranks of all machines.
inline int ranks_in(const machine_layout& machines) { return std::accumulate(machines.begin(), machines.end(), 0); }

/// Runs the ranks of several pretended machines.
template <class RankMain>
void on_machines(const machine_layout& machines, RankMain rank_main) {
  hfcomm::testing::run_ranks_options options;
  options.machines = machines;
  run_ranks(ranks_in(machines), rank_main, options);
}

/// Returns a rank's values, periodic ones. Their sums and products depend on the order.
template <class T>
std::vector<T> values_of(int rank, std::size_t count) {
  std::vector<T> values(count);
  std::uint64_t state = 88172645463325252U + static_cast<std::uint64_t>(rank) * 977;
  for (T& value : std::span(values).first(period_of(count))) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    if constexpr (std::integral<T>) {
      value = static_cast<T>(state);
    } else {
      value = T(static_cast<float>(state >> 44) / 100'000 - 5);
    }
  }
  repeat_period(std::span(values));
  return values;
}

template <class T>
bool have_same_bits(std::span<const T> one, std::span<const T> other) {
  return one.size() == other.size() && (one.empty() || std::memcmp(one.data(), other.data(), one.size_bytes()) == 0);
}

}  // namespace multi_rank
