// SPDX-License-Identifier: MIT
#pragma once

#include "ranks.hpp"

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <span>
#include <vector>

/// Helpers of the tests with ranks on several pretended machines.
namespace multi_rank {

/// The number of ranks of each machine.
using machine_layout = std::vector<int>;

/// Runs the ranks of several pretended machines.
template <class RankMain>
void on_machines(const machine_layout& machines, RankMain rank_main) {
  hfcomm::testing::run_ranks_options options;
  options.machines = machines;
  run_ranks(std::accumulate(machines.begin(), machines.end(), 0), rank_main, options);
}

/// Long values repeat with a period that no chunk and no part has: without optimisation, and even more so under
/// sanitizers, computing each of them takes longer than what is tested.
inline std::size_t period_of(std::size_t count) { return std::min<std::size_t>(count, 4099); }

/// Copies the first elements of `values`, of which there are `period_of`, until all have a value.
template <class T>
void repeat_period(std::vector<T>& values) {
  for (std::size_t filled = period_of(values.size()); filled < values.size();) {
    const auto next = std::span(values).subspan(filled, std::min(filled, values.size() - filled));
    std::memcpy(static_cast<void*>(next.data()), values.data(), next.size_bytes());
    filled += next.size();
  }
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
  repeat_period(values);
  return values;
}

template <class T>
bool have_same_bits(std::span<const T> one, std::span<const T> other) {
  return one.size() == other.size() && std::memcmp(one.data(), other.data(), one.size_bytes()) == 0;
}

}  // namespace multi_rank
