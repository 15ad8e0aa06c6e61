// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string_view>

namespace hfcomm {

/// How the ranks' values become one. Reductions run in rank order, 16-bit floats with a float32 accumulator that is
/// rounded once, so every rank gets the same bits, on every run.
enum class reduce_op : std::uint8_t {
  sum,      ///< Integers wrap around, as unsigned arithmetic does.
  product,  ///< Integers wrap around.
  min,      ///< `b < a ? b : a` in rank order: a NaN of the lowest rank stays, one of a higher rank does not win.
  max,      ///< `a < b ? b : a` in rank order.
  average,  ///< The sum divided by the group's size; floating-point types only.
};

[[nodiscard]] constexpr std::string_view to_string(reduce_op op) noexcept {
  switch (op) {
    case reduce_op::sum: return "sum";
    case reduce_op::product: return "product";
    case reduce_op::min: return "min";
    case reduce_op::max: return "max";
    case reduce_op::average: return "average";
  }
  return "unknown reduce_op";
}

}  // namespace hfcomm
