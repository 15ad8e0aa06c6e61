// SPDX-License-Identifier: MIT
#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <tuple>

#include <hfcomm/core/config.hpp>
#include <hfcomm/core/element_type.hpp>
#include <hfcomm/core/reduce_op.hpp>
#include <hfcomm/core/std_algorithm.hpp>
#include <hfcomm/engine/reduction/copy_bytes.hpp>
#include <hfcomm/engine/reduction/detail/reduction_blocks.hpp>
#include <hfcomm/engine/reduction/kernel.hpp>

namespace hfcomm::detail {

/// The C++ type that the elements of an element type are calculated as. Of a complex number: the type of both parts.
template <element_type Type>
using real_of_type = std::tuple_element_t<
    static_cast<std::size_t>(Type),
    std::tuple<void, std::int8_t, std::int16_t, std::int32_t, std::int64_t, std::uint8_t, std::uint16_t, std::uint32_t,
               std::uint64_t, float16, bfloat16, float, double, float8_e4m3, float8_e5m2, float, double>>;

/// Returns an element in the type that it is calculated in.
template <class T>
[[nodiscard]] inline accumulator_of<T> accumulator_at(const std::byte* data, std::size_t index) noexcept {
  return load_element<T>(data, index);
}

/// Reduces one input: the result is the input, except for NaNs and roundings.
template <class T>
void conclude_alone([[maybe_unused]] reduce_kind op, const std::byte* input, std::byte* out,
                    std::size_t count) noexcept {
  if constexpr (!std::integral<T>) {
    if (is_narrow_float<T> || (op != reduce_kind::min && op != reduce_kind::max)) {
      for (std::size_t i = 0; i < count; ++i) {
        store_element(out, i, conclude<reduce_kind::sum, T>(accumulator_at<T>(input, i), 1));
      }
      return;
    }
  }
  if (input != out && count != 0) {
    std::memcpy(out, input, count * sizeof(T));
  }
}

/// Stores in `scaled[i]` element i times `factor`, rounded. Not inlined: beside the sum that follows, a compiler for a
/// machine with fused multiply-add would leave out the product's rounding.
template <class T>
[[gnu::noinline]] void scale_elements(const std::byte* data, std::size_t count, accumulator_of<T> factor,
                                      accumulator_of<T>* scaled) noexcept {
  for (std::size_t i = 0; i < count; ++i) {
    scaled[i] = accumulator_at<T>(data, i) * factor;
  }
}

/// Returns how many of `count` inputs are on the left of the tree: the largest power of two below it.
[[nodiscard]] constexpr std::size_t left_inputs(std::size_t count) noexcept { return std::bit_floor(count - 1); }

inline constexpr std::size_t premultiplied_block = 256;

/// Adds `size` elements of the inputs, each multiplied by its own factor, from an offset in bytes on.
template <class A>
void add_premultiplied(std::span<const std::byte* const> inputs, std::span<const double> factors, std::size_t offset,
                       std::size_t size, void (*scale)(const std::byte*, std::size_t, A, A*) noexcept,
                       A* sums) noexcept {
  if (inputs.size() == 1) {
    scale(inputs[0] + offset, size, static_cast<A>(factors[0]), sums);
    return;
  }
  const std::size_t left = left_inputs(inputs.size());
  add_premultiplied<A>(inputs.first(left), factors.first(left), offset, size, scale, sums);
  A others[premultiplied_block];
  add_premultiplied<A>(inputs.subspan(left), factors.subspan(left), offset, size, scale, others);
  for (std::size_t i = 0; i < size; ++i) {
    sums[i] = sums[i] + others[i];
  }
}

template <class T>
void reduce_premultiplied(std::span<const std::byte* const> inputs, std::span<const double> factors, std::byte* out,
                          std::size_t count) noexcept {
  using A = accumulator_of<T>;
  A sums[premultiplied_block];
  for (std::size_t begin = 0; begin < count; begin += premultiplied_block) {
    const std::size_t size = std::min(premultiplied_block, count - begin);
    const std::size_t offset = begin * sizeof(T);
    add_premultiplied<A>(inputs, factors, offset, size, &scale_elements<T>, sums);
    for (std::size_t i = 0; i < size; ++i) {
      store_element(out + offset, i, conclude<reduce_kind::sum, T>(sums[i], A(1)));
    }
  }
}

/// Reduces the inputs as truth values, into ones and zeros. A plain loop, because flags are few.
template <class T>
void reduce_truths(reduce_kind op, std::span<const std::byte* const> inputs, std::byte* out,
                   std::size_t count) noexcept {
  const bool is_and = op == reduce_kind::logical_and;
  for (std::size_t i = 0; i < count; ++i) {
    bool result = is_and;
    for (const std::byte* const input : inputs) {
      const bool is_true = accumulator_at<T>(input, i) != accumulator_of<T>{};
      result = is_and ? result && is_true : result || is_true;
    }
    store_element(out, i, result ? T(1) : T{});
  }
}

/// products[i] = a[i] * b[i]. Not inlined, so that no product and sum are contracted into one rounding.
template <class T>
[[gnu::noinline]] void multiply_elements(const T* a, const T* b, T* products, std::size_t count) noexcept {
  for (std::size_t i = 0; i < count; ++i) {
    products[i] = a[i] * b[i];
  }
}

/// A block of complex numbers in two arrays.
template <class T>
struct complex_block {
  static constexpr std::size_t size = 128;

  void load(const std::byte* data, std::size_t count) noexcept {
    for (std::size_t i = 0; i < count; ++i) {
      real[i] = load_element<T>(data, 2 * i);
      imaginary[i] = load_element<T>(data, 2 * i + 1);
    }
  }

  void multiply(const complex_block& by, std::size_t count) noexcept {
    T products[4][size];
    multiply_elements(real, by.real, products[0], count);
    multiply_elements(imaginary, by.imaginary, products[1], count);
    multiply_elements(real, by.imaginary, products[2], count);
    multiply_elements(imaginary, by.real, products[3], count);
    for (std::size_t i = 0; i < count; ++i) {
      real[i] = products[0][i] - products[1][i];
      imaginary[i] = products[2][i] + products[3][i];
    }
  }

  void store(std::byte* data, std::size_t count) const noexcept {
    for (std::size_t i = 0; i < count; ++i) {
      store_element(data, 2 * i, conclude<reduce_kind::product, T>(real[i], 1));
      store_element(data, 2 * i + 1, conclude<reduce_kind::product, T>(imaginary[i], 1));
    }
  }

  T real[size];
  T imaginary[size];
};

/// Multiplies `size` complex numbers of the inputs, from an offset in bytes on.
template <class T>
void multiply_inputs(std::span<const std::byte* const> inputs, std::size_t offset, std::size_t size,
                     complex_block<T>& product) noexcept {
  if (inputs.size() == 1) {
    product.load(inputs[0] + offset, size);
    return;
  }
  const std::size_t left = left_inputs(inputs.size());
  multiply_inputs(inputs.first(left), offset, size, product);
  complex_block<T> others;
  multiply_inputs(inputs.subspan(left), offset, size, others);
  product.multiply(others, size);
}

/// Multiplies the inputs, complex numbers of two T each.
template <class T>
void multiply_complex(std::span<const std::byte* const> inputs, std::byte* out, std::size_t count) noexcept {
  complex_block<T> product;
  for (std::size_t begin = 0; begin < count; begin += product.size) {
    const std::size_t size = std::min(product.size, count - begin);
    const std::size_t offset = begin * 2 * sizeof(T);
    multiply_inputs(inputs, offset, size, product);
    product.store(out + offset, size);
  }
}

/// Copies part of the first output to the others.
HFCOMM_INLINE void copy_to_other_outputs(std::span<std::byte* const> outs, std::size_t offset,
                                         std::size_t bytes) noexcept {
  for (std::byte* const out : outs.subspan(1)) {
    copy_bytes(out + offset, outs[0] + offset, bytes);
  }
}

/// Returns the elements of the first block of a long reduction: `block`, or fewer where all inputs and outputs have the
/// same offset in their pages, as those of one allocator often do. The blocks after it then lie in one page each,
/// because processors do not fetch ahead beyond a page. They also begin with a cache line.
HFCOMM_INLINE std::size_t first_block_size(std::span<const std::byte* const> inputs, std::span<std::byte* const> outs,
                                           std::size_t width, std::size_t block) noexcept {
  const auto offset_of = [mask = block * width - 1](const std::byte* data) {  // the block's bytes are a power of two
    return reinterpret_cast<std::uintptr_t>(data) & mask;
  };
  const std::size_t first = offset_of(outs[0]);
  const auto is_alike = [&](const std::byte* data) { return offset_of(data) == first; };
  const bool all_are_alike = std::all_of(inputs.begin(), inputs.end(), is_alike) &&
                             std::all_of(outs.begin(), outs.end(), is_alike) && first % width == 0;
  return all_are_alike ? block - first / width : block;
}

/// Reduces elements of the inputs, from an offset in bytes on, to the accumulators `sums`: of one input only where the
/// loops have `widen`.
HFCOMM_INLINE void reduce_block(const reduction_loops& loops, std::span<const std::byte* const> inputs,
                                std::size_t offset, std::size_t count, std::byte* sums) noexcept {
  const std::byte* const last = inputs.back() + offset;
  if (inputs.size() == 1) {
    loops.widen(last, sums, count);
    return;
  }
  if (inputs.size() == 2 && loops.pair != nullptr) {
    loops.pair(sums, inputs[0] + offset, last, count);
    return;
  }
  const std::size_t left = left_inputs(inputs.size());
  reduce_block(loops, inputs.first(left), offset, count, sums);
  if (left + 1 == inputs.size() && loops.add != nullptr) {
    loops.add(sums, sums, last, count);
    return;
  }
  alignas(64) std::byte others[reduction_bytes];
  reduce_block(loops, inputs.subspan(left), offset, count, others);
  loops.merge(sums, sums, others, count);
}

/// Reduces at least two inputs of elements of `width` bytes, block by block.
HFCOMM_INLINE void run_loops(const reduction_loops& loops, std::size_t width, std::span<const std::byte* const> inputs,
                             std::span<std::byte* const> outs, std::size_t count, std::size_t divisor) noexcept {
  alignas(64) std::byte sums[reduction_bytes];
  alignas(64) std::byte others[reduction_bytes];
  const bool narrows = loops.narrow != nullptr && (inputs.size() > 2 || loops.both == nullptr);
  const std::size_t block = reduction_bytes / (narrows ? sizeof(float) : width);
  const std::size_t left = left_inputs(inputs.size());
  std::size_t size = count > block ? first_block_size(inputs, outs, width, block) : count;
  for (std::size_t begin = 0; begin < count; begin += size, size = std::min(block, count - begin)) {
    const std::size_t offset = begin * width;
    // Half of the tree: an input, or accumulators that are elements.
    const auto half = [&](std::span<const std::byte* const> some, std::byte* to) -> const std::byte* {
      if (some.size() == 1) {
        return some[0] + offset;
      }
      reduce_block(loops, some, offset, size, to);
      return to;
    };
    if (narrows) {
      reduce_block(loops, inputs, offset, size, sums);
      loops.narrow(sums, outs[0] + offset, size, divisor);
    } else {
      const std::byte* const first = half(inputs.first(left), sums);
      loops.both(outs[0] + offset, first, half(inputs.subspan(left), others), size, divisor);
    }
    copy_to_other_outputs(outs, offset, size * width);
  }
}

template <class T>
void reduce_reals(reduce_kind op, std::span<const std::byte* const> inputs, std::span<std::byte* const> outs,
                  std::size_t count, [[maybe_unused]] std::span<const double> factors, std::size_t divisor,
                  vector_unit unit) noexcept {
  if (is_logical(op)) {
    reduce_truths<T>(op, inputs, outs[0], count);
    copy_to_other_outputs(outs, 0, count * sizeof(T));
    return;
  }
  if constexpr (!std::integral<T>) {
    if (op == reduce_kind::premultiplied_sum) {
      reduce_premultiplied<T>(inputs, factors, outs[0], count);
      copy_to_other_outputs(outs, 0, count * sizeof(T));
      return;
    }
  }
  if (inputs.size() == 1) {
    conclude_alone<T>(op, inputs[0], outs[0], count);
    copy_to_other_outputs(outs, 0, count * sizeof(T));
  } else {
    run_loops(loops_for<T>(unit, op), sizeof(T), inputs, outs, count, divisor);
  }
}

template <element_type Type>
void reduce_elements(reduce_kind op, std::span<const std::byte* const> inputs, std::span<std::byte* const> outs,
                     std::size_t count, std::span<const double> factors, std::size_t divisor,
                     vector_unit unit) noexcept {
  using T = real_of_type<Type>;
  static_assert(size_of(Type) == (is_complex(Type) ? 2 : 1) * sizeof(T));
  if constexpr (!is_complex(Type)) {
    reduce_reals<T>(op, inputs, outs, count, factors, divisor, unit);
  } else if (op == reduce_kind::product) {
    multiply_complex<T>(inputs, outs[0], count);
    copy_to_other_outputs(outs, 0, count * size_of(Type));
  } else {
    reduce_reals<T>(op, inputs, outs, 2 * count, factors, divisor, unit);
  }
}

#if defined(HFCOMM_COMPILED)
using kernel_function = void(reduce_kind, std::span<const std::byte* const>, std::span<std::byte* const>, std::size_t,
                             std::span<const double>, std::size_t, vector_unit) noexcept;
template kernel_function reduce_elements<element_type::int8>;
template kernel_function reduce_elements<element_type::int16>;
template kernel_function reduce_elements<element_type::int32>;
template kernel_function reduce_elements<element_type::int64>;
template kernel_function reduce_elements<element_type::uint8>;
template kernel_function reduce_elements<element_type::uint16>;
template kernel_function reduce_elements<element_type::uint32>;
template kernel_function reduce_elements<element_type::uint64>;
template kernel_function reduce_elements<element_type::float16>;
template kernel_function reduce_elements<element_type::bfloat16>;
template kernel_function reduce_elements<element_type::float32>;
template kernel_function reduce_elements<element_type::float64>;
template kernel_function reduce_elements<element_type::float8_e4m3>;
template kernel_function reduce_elements<element_type::float8_e5m2>;
template kernel_function reduce_elements<element_type::complex64>;
template kernel_function reduce_elements<element_type::complex128>;
#endif

}  // namespace hfcomm::detail
