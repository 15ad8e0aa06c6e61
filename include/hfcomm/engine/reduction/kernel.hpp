// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <span>

#include <hfcomm/core/element_type.hpp>
#include <hfcomm/core/reduce_op.hpp>
#include <hfcomm/engine/reduction/vector_unit.hpp>

namespace hfcomm::detail {

/// Returns whether elements are accumulated in a wider type. A result of several of them cannot be reduced further
/// without rounding twice.
[[nodiscard]] constexpr bool has_wider_accumulator(element_type type) noexcept {
  return is_floating_point(type) && !is_complex(type) && size_of(type) < sizeof(float);
}

/// Returns whether any order of the inputs gives the same bits: integers wrap around, and bits do not touch each other.
[[nodiscard]] constexpr bool is_order_free(element_type type) noexcept {
  return !is_floating_point(type) && !is_complex(type);
}

/// Reduces elements of one type.
///
/// outs[each][i] = ((inputs[0][i] op inputs[1][i]) op (inputs[2][i] op inputs[3][i])) op ... for `count` elements, in
/// the order of one binary tree: of n inputs, those before the largest power of two below n are reduced by themselves,
/// and so are the others, each in the same way. The order depends on n alone. The rounding error of a sum grows with
/// log n. Where parts of the inputs are whole subtrees, each can be reduced by itself.
///
/// Preconditions, not checked: `op` is valid for the type; at least one input and one output; as many factors as inputs
/// for a premultiplied sum; a divisor of 1 for the average of one input; the machine has `unit`; each output is one of
/// the inputs (the very same pointer) or overlaps none. Nothing is assumed of alignment. Any thread may call, as long
/// as no other thread writes these buffers.
///
/// Floats of 16 and 8 bits are accumulated in float and rounded once, at the end. `average` divides the sum by
/// `divisor` in the accumulator's type. A premultiplied sum rounds each factor to that type, then each product. Each
/// NaN in a result is the positive quiet NaN without payload. Only min and max of float and double return the NaN of an
/// input, because they calculate nothing: of two, the left one stays unless the right one is less or greater.
///
/// Complex elements are pairs of reals, each of which is as above. The product of two rounds each of its four products.
///
/// Every bit of the result follows from the inputs alone, whatever `count`, alignment, vector width, machine or
/// optimisation level. There are three reasons. Elements do not depend on each other. No function has a product and a
/// sum that a compiler could contract into one rounding (except exact scalings where narrow floats are widened). And
/// NaN payloads, which compilers need not keep, are dropped. Options that give up IEEE arithmetic (-ffast-math) give up
/// this guarantee, too.
using reduction_kernel = void (*)(reduce_kind op, std::span<const std::byte* const> inputs,
                                  std::span<std::byte* const> outs, std::size_t count, std::span<const double> factors,
                                  std::size_t divisor, vector_unit unit) noexcept;

/// The kernel of one element type. A typed call passes on this function's address, so a program holds the kernels of
/// the element types that it reduces, and of no others.
template <element_type Type>
void reduce_elements(reduce_kind op, std::span<const std::byte* const> inputs, std::span<std::byte* const> outs,
                     std::size_t count, std::span<const double> factors, std::size_t divisor,
                     vector_unit unit) noexcept;

/// Reduces elements with the widest vector unit of this machine.
inline void run_kernel(reduction_kernel kernel, reduce_kind op, std::span<const std::byte* const> inputs,
                       std::span<std::byte* const> outs, std::size_t count, std::span<const double> factors,
                       std::size_t divisor) noexcept {
  kernel(op, inputs, outs, count, factors, divisor, best_vector_unit());
}
/// The same where each input is that of one rank, and there are all of them.
inline void run_kernel(reduction_kernel kernel, reduce_kind op, std::span<const std::byte* const> inputs,
                       std::span<std::byte* const> outs, std::size_t count, std::span<const double> factors) noexcept {
  run_kernel(kernel, op, inputs, outs, count, factors, inputs.size());
}
inline void run_kernel(reduction_kernel kernel, reduce_kind op, std::span<const std::byte* const> inputs,
                       std::byte* out, std::size_t count, std::span<const double> factors) noexcept {
  run_kernel(kernel, op, inputs, {&out, 1}, count, factors);
}

}  // namespace hfcomm::detail
