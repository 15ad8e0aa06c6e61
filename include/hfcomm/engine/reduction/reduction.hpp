// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>

#include <hfcomm/core/element_type.hpp>
#include <hfcomm/core/reduce_op.hpp>
#include <hfcomm/engine/reduction/copy_bytes.hpp>
#include <hfcomm/engine/reduction/reduction_blocks.hpp>
#include <hfcomm/engine/reduction/vector_unit.hpp>

namespace hfcomm::detail {

/// Elements as what they are calculated in.
template <class T>
[[nodiscard]] inline accumulator_of<T> accumulator_at(const std::byte* data, std::size_t index) noexcept {
  return load_element<T>(data, index);
}

/// Of one input: what is calculated from it, which is the input but for NaNs and averages' roundings.
template <class T>
inline void conclude_alone(reduce_kind op, const std::byte* input, std::byte* out, std::size_t count) noexcept {
  const bool calculates = is_narrow_float<T> || (op != reduce_kind::min && op != reduce_kind::max);
  for (std::size_t i = 0; calculates && i < count; ++i) {
    store_element(out, i, conclude<reduce_kind::sum, T>(accumulator_at<T>(input, i), 1));
  }
  if (!calculates && input != out) {
    std::memcpy(out, input, count * sizeof(T));
  }
}
inline void conclude_alone(reduce_kind op, element_type type, const std::byte* input, std::byte* out,
                           std::size_t count) noexcept {
  switch (type) {
    case element_type::float16: return conclude_alone<float16>(op, input, out, count);
    case element_type::bfloat16: return conclude_alone<bfloat16>(op, input, out, count);
    case element_type::float8_e4m3: return conclude_alone<float8_e4m3>(op, input, out, count);
    case element_type::float8_e5m2: return conclude_alone<float8_e5m2>(op, input, out, count);
    case element_type::float32: return conclude_alone<float>(op, input, out, count);
    case element_type::float64: return conclude_alone<double>(op, input, out, count);
    default:
      if (input != out && count != 0) {
        std::memcpy(out, input, count * size_of(type));
      }
  }
}

/// `scaled[i]` = element i times `factor`, rounded. Not inlined: in sight of the sum that follows, compilers for
/// machines with a fused multiply-add would leave out the product's rounding.
template <class T>
[[gnu::noinline]] inline void scale_elements(const std::byte* data, std::size_t count, accumulator_of<T> factor,
                                             accumulator_of<T>* scaled) noexcept {
  for (std::size_t i = 0; i < count; ++i) {
    scaled[i] = accumulator_at<T>(data, i) * factor;
  }
}

/// The sum of what each input's factor makes of its own.
template <class T>
inline void reduce_premultiplied(std::span<const std::byte* const> inputs, std::span<const double> factors,
                                 std::byte* out, std::size_t count) noexcept {
  using A = accumulator_of<T>;
  constexpr std::size_t block = 256;
  A sums[block] = {};
  A scaled[block] = {};
  for (std::size_t begin = 0; begin < count; begin += block) {
    const std::size_t size = std::min(block, count - begin);
    const std::size_t offset = begin * sizeof(T);
    scale_elements<T>(inputs[0] + offset, size, static_cast<A>(factors[0]), sums);
    for (std::size_t k = 1; k < inputs.size(); ++k) {
      scale_elements<T>(inputs[k] + offset, size, static_cast<A>(factors[k]), scaled);
      for (std::size_t i = 0; i < size; ++i) {
        sums[i] = sums[i] + scaled[i];
      }
    }
    for (std::size_t i = 0; i < size; ++i) {
      store_element(out + offset, i, conclude<reduce_kind::sum, T>(sums[i], A(1)));
    }
  }
}
inline void reduce_premultiplied(element_type type, std::span<const std::byte* const> inputs,
                                 std::span<const double> factors, std::byte* out, std::size_t count) noexcept {
  switch (type) {
    case element_type::float16: return reduce_premultiplied<float16>(inputs, factors, out, count);
    case element_type::bfloat16: return reduce_premultiplied<bfloat16>(inputs, factors, out, count);
    case element_type::float8_e4m3: return reduce_premultiplied<float8_e4m3>(inputs, factors, out, count);
    case element_type::float8_e5m2: return reduce_premultiplied<float8_e5m2>(inputs, factors, out, count);
    case element_type::float32: return reduce_premultiplied<float>(inputs, factors, out, count);
    case element_type::float64: return reduce_premultiplied<double>(inputs, factors, out, count);
    default: return;
  }
}

/// outs[each][i] = inputs[0][i] op inputs[1][i] op ... from left to right, so in rank order, for `count` elements.
///
/// Preconditions, not checked: `valid(op, type)`; at least one input and one output; as many factors for a
/// premultiplied sum; each output is one of the inputs (the very same pointer) or overlaps none. Nothing is assumed of
/// alignment. Any thread, as long as nobody else writes.
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
inline void reduce_elements(reduce_kind op, element_type type, std::span<const std::byte* const> inputs,
                            std::span<std::byte* const> outs, std::size_t count, std::span<const double> factors = {},
                            vector_unit unit = best_vector_unit()) noexcept {
  const std::size_t width = size_of(type);
  const auto hand_out = [&](std::size_t begin, std::size_t size) {
    for (std::byte* const out : outs.subspan(1)) {
      copy_bytes(out + begin * width, outs[0] + begin * width, size * width);
    }
  };
  if (op == reduce_kind::premultiplied_sum || inputs.size() == 1) {
    if (op == reduce_kind::premultiplied_sum) {
      reduce_premultiplied(type, inputs, factors, outs[0], count);
    } else {
      conclude_alone(op, type, inputs[0], outs[0], count);
    }
    hand_out(0, count);
    return;
  }
  const reduction_loops loops = loops_for(unit, op, type);
  alignas(64) std::byte sums[reduction_bytes];
  const bool two = inputs.size() == 2;
  const std::size_t block = loops.widen != nullptr && !two ? reduction_bytes / sizeof(float) : reduction_bytes / width;
  for (std::size_t begin = 0; begin < count; begin += block) {
    const std::size_t size = std::min(block, count - begin);
    const std::size_t offset = begin * width;
    const std::byte* so_far = inputs[0] + offset;
    if (loops.widen != nullptr && !two) {
      loops.widen(so_far, sums, size);
      so_far = sums;
    }
    for (std::size_t index = 1; index + 1 < inputs.size(); ++index) {
      loops.combine(sums, so_far, inputs[index] + offset, size);
      so_far = sums;
    }
    (two ? loops.both : loops.conclude)(outs[0] + offset, so_far, inputs.back() + offset, size, inputs.size());
    hand_out(begin, size);
  }
}

inline void reduce_elements(reduce_kind op, element_type type, std::span<const std::byte* const> inputs, std::byte* out,
                            std::size_t count, std::span<const double> factors = {},
                            vector_unit unit = best_vector_unit()) noexcept {
  reduce_elements(op, type, inputs, {&out, 1}, count, factors, unit);
}

}  // namespace hfcomm::detail
