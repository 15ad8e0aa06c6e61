// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>

/// Long values that repeat with a period that no chunk and no part has: without optimisation, and even more so under
/// sanitizers, computing each of them takes longer than what is tested.
namespace periodic {

/// Returns how many of `count` values are computed; the others repeat them.
constexpr std::size_t period_of(std::size_t count) { return std::min<std::size_t>(count, 4099); }

/// Copies the first `period_of` elements until all have a value.
template <class T>
void repeat_period(std::span<T> values) {
  for (std::size_t filled = period_of(values.size()); filled < values.size();) {
    const auto next = values.subspan(filled, std::min(filled, values.size() - filled));
    std::memcpy(static_cast<void*>(next.data()), values.data(), next.size_bytes());
    filled += next.size();
  }
}

}  // namespace periodic
