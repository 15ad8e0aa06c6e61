// SPDX-License-Identifier: MIT
#pragma once

#include <limits>

#include <hfcomm/core/plain.hpp>

namespace hfcomm {

/// A mean of values with weights, such as a loss over batches of different sizes. Sum and weights are stored
/// separately, so that the ranks' means combine to the mean over all of their values.
///
/// As a value of a dictionary, `reduce_dict` and `all_reduce_dict` add up sums and counts under `sum` and `average`
/// alike; other reductions are a usage_error. A single one is reduced by `all_reduce(mean, std::plus<>())`.
struct weighted_mean {
  double sum = 0;    ///< The sum of the values, each times its weight.
  double count = 0;  ///< The sum of the weights.

  /// Adds one value, or the mean of `weight` values.
  constexpr void add(double value, double weight = 1) noexcept {
    sum += value * weight;
    count += weight;
  }

  /// Returns the mean; NaN where the weights add up to zero.
  [[nodiscard]] constexpr double value() const noexcept {
    return count != 0 ? sum / count : std::numeric_limits<double>::quiet_NaN();
  }

  [[nodiscard]] friend constexpr weighted_mean operator+(weighted_mean left, weighted_mean right) noexcept {
    return {left.sum + right.sum, left.count + right.count};
  }
  [[nodiscard]] friend constexpr bool operator==(const weighted_mean&, const weighted_mean&) noexcept = default;
};

template <>
inline constexpr bool enable_raw_bytes<weighted_mean> = true;

}  // namespace hfcomm
