// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include <hfcomm/core/element_type.hpp>
#include <hfcomm/core/float16.hpp>
#include <hfcomm/core/float8.hpp>
#include <hfcomm/core/reduce_op.hpp>
#include <hfcomm/engine/reduction/vector_unit.hpp>

// The loops of a reduction, each over at most a block of elements. g++'s -O2 vectorises only loops whose number of
// turns it knows to fit, and only where it knows that nothing overlaps in a harmful way: so there are inner loops of
// `reduction_turns`, and the promise that what is written is either the very thing that is read, or apart from it.
#if defined(__clang__)
#define HFCOMM_NO_OVERLAP _Pragma("clang loop vectorize(assume_safety)")
// It is a promise, not a demand: where a program is built without vectorisation (-O1, -Os, sanitizers), that is no
// reason to warn.
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wpass-failed"
#elif defined(__GNUC__)
#define HFCOMM_NO_OVERLAP _Pragma("GCC ivdep")
#else
#define HFCOMM_NO_OVERLAP
#endif

namespace hfcomm::detail {

/// Bytes of a block that is being calculated: what is between the passes stays in a core's nearest cache.
inline constexpr std::size_t reduction_bytes = 4096;
inline constexpr std::size_t reduction_turns = 64;

template <class T>
inline constexpr bool is_narrow_float = is_floating_point(element_type_of<T>) && sizeof(T) < sizeof(float);

/// What elements of T are calculated in.
template <class T>
using accumulator_of = std::conditional_t<is_narrow_float<T>, float, T>;

// Through memcpy: elements may be of another type of the same width (long long for int64), and are only as aligned as
// their type. Compilers make plain loads and stores of it.
template <class T>
[[nodiscard, gnu::always_inline]] inline T load_element(const std::byte* data, std::size_t index) noexcept {
  T value;
  std::memcpy(&value, data + index * sizeof(T), sizeof(T));
  return value;
}

template <class T>
[[gnu::always_inline]] inline void store_element(std::byte* data, std::size_t index, T value) noexcept {
  std::memcpy(data + index * sizeof(T), &value, sizeof(T));
}

/// One step of a reduction; A is unsigned or floating-point where it calculates.
template <reduce_kind Op, class A>
[[nodiscard, gnu::always_inline]] inline A combine(A a, A b) noexcept {
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
/// Minima and maxima of what is not rounded are not calculated, and stay as they are.
template <reduce_kind Op, class T>
[[nodiscard, gnu::always_inline]] inline T conclude(accumulator_of<T> value,
                                                    [[maybe_unused]] accumulator_of<T> inputs) noexcept {
  if constexpr (Op == reduce_kind::average) {
    value = value / inputs;
  }
  if constexpr (is_narrow_float<T>) {
    const auto bits = std::bit_cast<std::int32_t>(value);
    const std::int32_t is_number = mask_below(bits & 0x7fffffff, 0x7f800001);
    return T(std::bit_cast<float>(select(is_number, bits, 0x7fc00000)));
  } else if constexpr (std::floating_point<T> && Op != reduce_kind::min && Op != reduce_kind::max) {
    return value == value ? value : std::numeric_limits<T>::quiet_NaN();
  } else {
    return value;
  }
}

// Each loop below is done in whole turns, and one by one for what is left.

/// sums[i] = a[i] op b[i]; `sums` may be `a`.
template <reduce_kind Op, class T>
[[gnu::always_inline]] inline void combine_block(std::byte* sums, const std::byte* a, const std::byte* b,
                                                 std::size_t count) noexcept {
  using A = accumulator_of<T>;
  std::size_t i = 0;
  for (; i + reduction_turns <= count; i += reduction_turns) {
    HFCOMM_NO_OVERLAP
    for (std::size_t k = 0; k < reduction_turns; ++k) {
      store_element(sums, i + k, combine<Op, A>(load_element<A>(a, i + k), load_element<T>(b, i + k)));
    }
  }
  for (; i < count; ++i) {
    store_element(sums, i, combine<Op, A>(load_element<A>(a, i), load_element<T>(b, i)));
  }
}

/// out[i] = a[i] op b[i], as a result; `out` may be `a` or `b`. `First` is T or its accumulator.
template <reduce_kind Op, class T, class First>
[[gnu::always_inline]] inline void conclude_block(std::byte* out, const std::byte* a, const std::byte* b,
                                                  std::size_t count, std::size_t inputs) noexcept {
  using A = accumulator_of<T>;
  const auto divisor = static_cast<A>(inputs);
  std::size_t i = 0;
  for (; i + reduction_turns <= count; i += reduction_turns) {
    HFCOMM_NO_OVERLAP
    for (std::size_t k = 0; k < reduction_turns; ++k) {
      const A value = combine<Op, A>(load_element<First>(a, i + k), load_element<T>(b, i + k));
      store_element(out, i + k, conclude<Op, T>(value, divisor));
    }
  }
  for (; i < count; ++i) {
    const A value = combine<Op, A>(load_element<First>(a, i), load_element<T>(b, i));
    store_element(out, i, conclude<Op, T>(value, divisor));
  }
}

/// wide[i] = narrow[i]
template <class T>
[[gnu::always_inline]] inline void widen_block(const std::byte* narrow, std::byte* wide, std::size_t count) noexcept {
  std::size_t i = 0;
  for (; i + reduction_turns <= count; i += reduction_turns) {
    HFCOMM_NO_OVERLAP
    for (std::size_t k = 0; k < reduction_turns; ++k) {
      store_element(wide, i + k, static_cast<float>(load_element<T>(narrow, i + k)));
    }
  }
  for (; i < count; ++i) {
    store_element(wide, i, static_cast<float>(load_element<T>(narrow, i)));
  }
}

// The loops for each vector unit, in functions of its own.

#define HFCOMM_UNIT plain_blocks
#define HFCOMM_UNIT_BYTES 16
#define HFCOMM_UNIT_TARGET
#define HFCOMM_UNIT_F16C 0
#include <hfcomm/engine/reduction/reduction_unit.inc>

#if defined(__x86_64__)
#define HFCOMM_UNIT avx2_blocks
#define HFCOMM_UNIT_BYTES 32
#define HFCOMM_UNIT_TARGET HFCOMM_AVX2
#define HFCOMM_UNIT_F16C 1
#include <hfcomm/engine/reduction/reduction_unit.inc>

#define HFCOMM_UNIT avx512_blocks
#define HFCOMM_UNIT_BYTES 64
#define HFCOMM_UNIT_TARGET HFCOMM_AVX512
#define HFCOMM_UNIT_F16C 1
#include <hfcomm/engine/reduction/reduction_unit.inc>
#endif

/// How a reduction is done with one operation on elements of one type.
struct reduction_loops {
  using combining = void (*)(std::byte*, const std::byte*, const std::byte*, std::size_t) noexcept;
  using concluding = void (*)(std::byte*, const std::byte*, const std::byte*, std::size_t, std::size_t) noexcept;
  using widening = void (*)(const std::byte*, std::byte*, std::size_t) noexcept;
  combining combine = nullptr;    ///< Accumulators and elements to accumulators.
  concluding conclude = nullptr;  ///< Accumulators and the last elements to results.
  concluding both = nullptr;      ///< Two inputs' elements to results.
  widening widen = nullptr;       ///< Elements to accumulators; null where they are the same.
};

/// What sums and products are calculated in: those of two's complement integers have the same bits, signed or not.
template <class T>
struct wrapping {
  using type = T;
};
template <std::integral T>
struct wrapping<T> {
  using type = std::make_unsigned_t<T>;
};

template <class Blocks, reduce_kind Op, class T>
[[nodiscard]] inline reduction_loops loops_of() noexcept {
  // What is divided at the end is added up before.
  constexpr reduce_kind step = Op == reduce_kind::average ? reduce_kind::sum : Op;
  reduction_loops loops{&Blocks::template combine<step, T>, &Blocks::template conclude<Op, T, true>,
                        &Blocks::template conclude<Op, T, !is_narrow_float<T>>, nullptr};
  if constexpr (is_narrow_float<T>) {
    loops.widen = &Blocks::template widen<T>;
  }
  return loops;
}

template <class Blocks, class T>
[[nodiscard]] inline reduction_loops loops_for(reduce_kind op) noexcept {
  using U = typename wrapping<T>::type;
  switch (op) {
    case reduce_kind::sum: return loops_of<Blocks, reduce_kind::sum, U>();
    case reduce_kind::product: return loops_of<Blocks, reduce_kind::product, U>();
    case reduce_kind::min: return loops_of<Blocks, reduce_kind::min, T>();
    case reduce_kind::max: return loops_of<Blocks, reduce_kind::max, T>();
    default: break;
  }
  if constexpr (std::integral<T>) {
    switch (op) {
      case reduce_kind::bit_and: return loops_of<Blocks, reduce_kind::bit_and, U>();
      case reduce_kind::bit_or: return loops_of<Blocks, reduce_kind::bit_or, U>();
      case reduce_kind::bit_xor: return loops_of<Blocks, reduce_kind::bit_xor, U>();
      default: break;
    }
  } else if (op == reduce_kind::average) {
    return loops_of<Blocks, reduce_kind::average, T>();
  }
  return {};
}

/// For the element types that gradients and counters are of.
template <class Blocks>
[[nodiscard]] inline reduction_loops loops_for(reduce_kind op, element_type type) noexcept {
  switch (type) {
    case element_type::int32: return loops_for<Blocks, std::int32_t>(op);
    case element_type::int64: return loops_for<Blocks, std::int64_t>(op);
    case element_type::float16: return loops_for<Blocks, float16>(op);
    case element_type::bfloat16: return loops_for<Blocks, bfloat16>(op);
    case element_type::float32: return loops_for<Blocks, float>(op);
    case element_type::float64: return loops_for<Blocks, double>(op);
    case element_type::float8_e4m3: return loops_for<Blocks, float8_e4m3>(op);
    case element_type::float8_e5m2: return loops_for<Blocks, float8_e5m2>(op);
    default: return {};
  }
}

[[nodiscard]] inline reduction_loops loops_for(vector_unit unit, reduce_kind op, element_type type) noexcept {
  // Integers of other widths are less often added up than they are compiled: once is enough.
  switch (type) {
    case element_type::none: return {};
    case element_type::int8: return loops_for<plain_blocks, std::int8_t>(op);
    case element_type::int16: return loops_for<plain_blocks, std::int16_t>(op);
    case element_type::uint8: return loops_for<plain_blocks, std::uint8_t>(op);
    case element_type::uint16: return loops_for<plain_blocks, std::uint16_t>(op);
    case element_type::uint32: return loops_for<plain_blocks, std::uint32_t>(op);
    case element_type::uint64: return loops_for<plain_blocks, std::uint64_t>(op);
    default: break;
  }
  switch (unit) {
#if defined(__x86_64__)
    case vector_unit::avx512: return loops_for<avx512_blocks>(op, type);
    case vector_unit::avx2: return loops_for<avx2_blocks>(op, type);
#endif
    default: return loops_for<plain_blocks>(op, type);
  }
}

}  // namespace hfcomm::detail

#if defined(__clang__)
#pragma clang diagnostic pop
#endif
