// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <span>

#include <hfcomm/core/element_type.hpp>
#include <hfcomm/core/reduce_op.hpp>
#include <hfcomm/engine/reduction/vector_unit.hpp>

namespace hfcomm::detail {

/// Reduces elements of one type.
///
/// outs[each][i] = inputs[0][i] op inputs[1][i] op ... from left to right, so in rank order, for `count` elements.
///
/// Preconditions, not checked: `op` is valid for the type; at least one input and one output; as many factors as inputs
/// for a premultiplied sum; the machine has `unit`; each output is one of the inputs (the very same pointer) or
/// overlaps none. Nothing is assumed of alignment. Any thread, as long as nobody else writes.
///
/// Floats of 16 and 8 bits are accumulated in float and rounded once, at the end. `average` divides the sum by the
/// number of inputs in the accumulator's type. A premultiplied sum rounds each factor to that type, then each product.
/// A NaN that comes out is the positive quiet NaN without payload; only min and max of float and double, which
/// calculate nothing, hand on the NaN they got.
///
/// Every bit of the result follows from the inputs alone, not from `count`, alignment, vector width, the machine or
/// optimisation level: elements do not meet each other, no function has a product and a sum to contract into one
/// rounding (but for exact scalings where narrow floats are widened), and NaN payloads, which compilers are free with,
/// are dropped. Options that give up IEEE arithmetic (-ffast-math) give up this, too.
using reduction_kernel = void (*)(reduce_kind op, std::span<const std::byte* const> inputs,
                                  std::span<std::byte* const> outs, std::size_t count, std::span<const double> factors,
                                  vector_unit unit) noexcept;

/// The kernel of one element type. Whoever knows the type of its elements hands on this function's address, so that a
/// program holds the kernels of the types that it reduces, and of no others.
template <element_type Type>
void reduce_elements(reduce_kind op, std::span<const std::byte* const> inputs, std::span<std::byte* const> outs,
                     std::size_t count, std::span<const double> factors, vector_unit unit) noexcept;

/// Reduces elements with the widest vector unit of this machine.
inline void run_kernel(reduction_kernel kernel, reduce_kind op, std::span<const std::byte* const> inputs,
                       std::span<std::byte* const> outs, std::size_t count, std::span<const double> factors) noexcept {
  kernel(op, inputs, outs, count, factors, best_vector_unit());
}
inline void run_kernel(reduction_kernel kernel, reduce_kind op, std::span<const std::byte* const> inputs,
                       std::byte* out, std::size_t count, std::span<const double> factors) noexcept {
  run_kernel(kernel, op, inputs, {&out, 1}, count, factors);
}

}  // namespace hfcomm::detail
