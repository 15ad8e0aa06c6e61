// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <type_traits>

#include <hfcomm/element_type.hpp>
#include <hfcomm/float16.hpp>
#include <hfcomm/reduce_op.hpp>

namespace hfcomm::detail {

/// Elements per round of a kernel's loops. Constant trip counts, because that is all that g++'s -O2 vectorises.
inline constexpr std::size_t reduction_block = 64;

template <class T>
inline constexpr bool is_16_bit_float = std::same_as<T, float16> || std::same_as<T, bfloat16>;

template <class T>
using accumulator_of = std::conditional_t<is_16_bit_float<T>, float, T>;

// Through memcpy: elements may be of another type of the same width (long long for int64), and are only as aligned as
// their type. Compilers make plain loads and stores of it.
template <class T>
[[nodiscard]] inline accumulator_of<T> load_element(const std::byte* data, std::size_t index) noexcept {
  T value;
  std::memcpy(&value, data + index * sizeof(T), sizeof(T));
  return static_cast<accumulator_of<T>>(value);
}

template <class T>
inline void store_element(std::byte* data, std::size_t index, T value) noexcept {
  std::memcpy(data + index * sizeof(T), &value, sizeof(T));
}

/// One step of a reduction; A is unsigned or floating-point where it calculates.
template <reduce_kind Op, class A>
[[nodiscard]] inline A combine(A a, A b) noexcept {
  if constexpr (Op == reduce_kind::min) {
    return b < a ? b : a;
  } else if constexpr (Op == reduce_kind::max) {
    return a < b ? b : a;
  } else if constexpr (Op == reduce_kind::bit_and) {
    return static_cast<A>(a & b);
  } else if constexpr (Op == reduce_kind::bit_or) {
    return static_cast<A>(a | b);
  } else if constexpr (Op == reduce_kind::bit_xor) {
    return static_cast<A>(a ^ b);
  } else if constexpr (std::floating_point<A>) {
    if constexpr (Op == reduce_kind::product) {
      return a * b;
    } else {
      return a + b;
    }
  } else {
    // At least as wide as unsigned: uint16_t would be promoted to int, and the product of two can overflow that.
    using wide = std::common_type_t<A, unsigned>;
    if constexpr (Op == reduce_kind::product) {
      return static_cast<A>(static_cast<wide>(a) * static_cast<wide>(b));
    } else {
      return static_cast<A>(static_cast<wide>(a) + static_cast<wide>(b));
    }
  }
}

/// From the accumulator to the element. A NaN that was calculated becomes the one quiet NaN: which operand's payload an
/// addition hands on depends on the order the compiler chose for the operands, and results are to be equal to the bit.
template <reduce_kind Op, class T>
[[nodiscard]] inline T finish(accumulator_of<T> value, [[maybe_unused]] accumulator_of<T> inputs) noexcept {
  if constexpr (Op == reduce_kind::average) {
    value = value / inputs;
  }
  if constexpr (is_16_bit_float<T>) {
    const auto bits = std::bit_cast<std::int32_t>(value);
    const std::int32_t is_number = mask_below(bits & 0x7fffffff, 0x7f800001);
    return T(std::bit_cast<float>(select(is_number, bits, 0x7fc00000)));
  } else if constexpr (std::floating_point<T> && Op != reduce_kind::min && Op != reduce_kind::max) {
    return value == value ? value : std::numeric_limits<T>::quiet_NaN();
  } else {
    return value;
  }
}

/// Reduces `reduction_block` elements at `offset` bytes into each input. Everything goes through a local array, which
/// the compiler knows to be apart from the inputs and `out`: no loop needs to care whether `out` is one of the inputs.
template <reduce_kind Op, class T>
inline void reduce_block(std::span<const std::byte* const> inputs, std::size_t offset, std::byte* out) noexcept {
  using A = accumulator_of<T>;
  A accumulator[reduction_block];
  const std::byte* const first = inputs[0] + offset;
  if (inputs.size() == 1) {
    for (std::size_t i = 0; i < reduction_block; ++i) {
      accumulator[i] = load_element<T>(first, i);
    }
  } else {
    // Two at once: two inputs are the common case, and this saves it a pass.
    const std::byte* const second = inputs[1] + offset;
    for (std::size_t i = 0; i < reduction_block; ++i) {
      accumulator[i] = combine<Op>(load_element<T>(first, i), load_element<T>(second, i));
    }
  }
  for (std::size_t k = 2; k < inputs.size(); ++k) {
    const std::byte* const next = inputs[k] + offset;
    for (std::size_t i = 0; i < reduction_block; ++i) {
      accumulator[i] = combine<Op>(accumulator[i], load_element<T>(next, i));
    }
  }
  const auto divisor = static_cast<A>(inputs.size());
  for (std::size_t i = 0; i < reduction_block; ++i) {
    store_element(out, i, finish<Op, T>(accumulator[i], divisor));
  }
}

/// Reduces `count` elements.
template <reduce_kind Op, class T>
inline void reduce_all(std::span<const std::byte* const> inputs, std::byte* out, std::size_t count) noexcept {
  const std::size_t whole = count / reduction_block * reduction_block;
  for (std::size_t i = 0; i < whole; i += reduction_block) {
    reduce_block<Op, T>(inputs, i * sizeof(T), out + i * sizeof(T));
  }
  // The rest, one by one.
  for (std::size_t i = whole; i < count; ++i) {
    auto value = load_element<T>(inputs[0], i);
    for (std::size_t k = 1; k < inputs.size(); ++k) {
      value = combine<Op>(value, load_element<T>(inputs[k], i));
    }
    store_element(out, i, finish<Op, T>(value, static_cast<accumulator_of<T>>(inputs.size())));
  }
}

/// `scaled[i]` = element i times `factor`, rounded, for `count` elements (at most a block). Not inlined: in sight of
/// the sum that follows, compilers for machines with a fused multiply-add would leave out the product's rounding.
template <class T>
[[gnu::noinline]] inline void scale_elements(const std::byte* data, std::size_t count, accumulator_of<T> factor,
                                             accumulator_of<T>* scaled) noexcept {
  if (count == reduction_block) {
    for (std::size_t i = 0; i < reduction_block; ++i) {
      scaled[i] = load_element<T>(data, i) * factor;
    }
  } else {
    for (std::size_t i = 0; i < count; ++i) {
      scaled[i] = load_element<T>(data, i) * factor;
    }
  }
}

/// Reduces `count` elements to the sum of what each input's factor makes of its own.
template <class T>
inline void reduce_premultiplied(std::span<const std::byte* const> inputs, std::span<const double> factors,
                                 std::byte* out, std::size_t count) noexcept {
  using A = accumulator_of<T>;
  A accumulator[reduction_block] = {};
  A scaled[reduction_block] = {};
  for (std::size_t begin = 0; begin < count; begin += reduction_block) {
    const std::size_t size = std::min(reduction_block, count - begin);
    const std::size_t offset = begin * sizeof(T);
    scale_elements<T>(inputs[0] + offset, size, static_cast<A>(factors[0]), accumulator);
    for (std::size_t k = 1; k < inputs.size(); ++k) {
      scale_elements<T>(inputs[k] + offset, size, static_cast<A>(factors[k]), scaled);
      // Of a whole block even where less is wanted: see reduction_block.
      for (std::size_t i = 0; i < reduction_block; ++i) {
        accumulator[i] = accumulator[i] + scaled[i];
      }
    }
    for (std::size_t i = 0; i < size; ++i) {
      store_element(out + offset, i, finish<reduce_kind::premultiplied_sum, T>(accumulator[i], A(1)));
    }
  }
}

using reduction_kernel = void (*)(std::span<const std::byte* const>, std::byte*, std::size_t) noexcept;

/// What sums and products are calculated in: those of two's complement integers have the same bits, signed or not.
template <class T>
struct wrapping {
  using type = T;
};
template <std::integral T>
struct wrapping<T> {
  using type = std::make_unsigned_t<T>;
};

template <class T>
[[nodiscard]] inline reduction_kernel kernel_for(reduce_kind op) noexcept {
  switch (op) {
    case reduce_kind::sum: return &reduce_all<reduce_kind::sum, typename wrapping<T>::type>;
    case reduce_kind::product: return &reduce_all<reduce_kind::product, typename wrapping<T>::type>;
    case reduce_kind::min: return &reduce_all<reduce_kind::min, T>;
    case reduce_kind::max: return &reduce_all<reduce_kind::max, T>;
    case reduce_kind::average:
      if constexpr (!std::integral<T>) {
        return &reduce_all<reduce_kind::average, T>;
      }
      break;
    case reduce_kind::bit_and:
      if constexpr (std::integral<T>) {
        return &reduce_all<reduce_kind::bit_and, typename wrapping<T>::type>;
      }
      break;
    case reduce_kind::bit_or:
      if constexpr (std::integral<T>) {
        return &reduce_all<reduce_kind::bit_or, typename wrapping<T>::type>;
      }
      break;
    case reduce_kind::bit_xor:
      if constexpr (std::integral<T>) {
        return &reduce_all<reduce_kind::bit_xor, typename wrapping<T>::type>;
      }
      break;
    case reduce_kind::premultiplied_sum: break;  // takes more: reduce_premultiplied
  }
  return nullptr;
}

[[nodiscard]] inline reduction_kernel kernel_for(reduce_kind op, element_type type) noexcept {
  switch (type) {
    case element_type::none: break;
    case element_type::int8: return kernel_for<std::int8_t>(op);
    case element_type::int16: return kernel_for<std::int16_t>(op);
    case element_type::int32: return kernel_for<std::int32_t>(op);
    case element_type::int64: return kernel_for<std::int64_t>(op);
    case element_type::uint8: return kernel_for<std::uint8_t>(op);
    case element_type::uint16: return kernel_for<std::uint16_t>(op);
    case element_type::uint32: return kernel_for<std::uint32_t>(op);
    case element_type::uint64: return kernel_for<std::uint64_t>(op);
    case element_type::float16: return kernel_for<float16>(op);
    case element_type::bfloat16: return kernel_for<bfloat16>(op);
    case element_type::float32: return kernel_for<float>(op);
    case element_type::float64: return kernel_for<double>(op);
  }
  return nullptr;
}

/// out[i] = inputs[0][i] op inputs[1][i] op ... from left to right, so in rank order, for `count` elements.
///
/// Preconditions, not checked: `valid(op, type)`; at least one input; as many factors for a premultiplied sum; `out` is
/// one of the inputs (the very same pointer) or overlaps none. Nothing is assumed of alignment. Any thread, as long as
/// nobody else writes.
///
/// 16-bit floats are accumulated in float and rounded once, at the end. `average` divides the sum by the number of
/// inputs in the accumulator's type. A premultiplied sum rounds each factor to that type, then each product. A NaN that
/// comes out is the positive quiet NaN without payload; only min and max of float and double, which calculate nothing,
/// hand on the NaN they got.
///
/// Every bit of the result follows from the inputs alone, not from `count`, alignment, vector width or optimisation
/// level: elements do not meet each other, no function has a product and a sum to contract into one rounding (but for
/// the exact scaling in `widen_float16`), and NaN payloads, which compilers are free with, are dropped. Options that
/// give up IEEE arithmetic (-ffast-math) give up this, too.
inline void reduce_elements(reduce_kind op, element_type type, std::span<const std::byte* const> inputs, std::byte* out,
                            std::size_t count, std::span<const double> factors = {}) noexcept {
  if (op != reduce_kind::premultiplied_sum) {
    kernel_for(op, type)(inputs, out, count);
    return;
  }
  switch (type) {
    case element_type::float16: return reduce_premultiplied<float16>(inputs, factors, out, count);
    case element_type::bfloat16: return reduce_premultiplied<bfloat16>(inputs, factors, out, count);
    case element_type::float32: return reduce_premultiplied<float>(inputs, factors, out, count);
    case element_type::float64: return reduce_premultiplied<double>(inputs, factors, out, count);
    default: return;
  }
}

}  // namespace hfcomm::detail
