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
#include <hfcomm/engine/reduction/detail/vector_unit-inl.hpp>

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

/// Bytes of a block that is being calculated. Intermediate results of this size stay in the core's nearest cache.
inline constexpr std::size_t reduction_bytes = 4096;
inline constexpr std::size_t reduction_turns = 64;

template <class T>
inline constexpr bool is_narrow_float = is_floating_point(element_type_of<T>) && sizeof(T) < sizeof(float);

template <class T>
inline constexpr bool is_float8 = is_narrow_float<T> && sizeof(T) == 1;

/// The type that elements of T are calculated in.
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

/// Converts an accumulator to an element. A NaN that was calculated becomes the one quiet NaN: which operand's payload
/// an addition hands on depends on the order the compiler chose for the operands, and results are to be equal to the
/// bit. Minima and maxima of what is not rounded are not calculated, and stay as they are.
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

/// sums[i] = a[i] op b[i]; `sums` may be `a`. `First` is T or its accumulator.
template <reduce_kind Op, class T, class First>
[[gnu::always_inline]] inline void combine_block(std::byte* sums, const std::byte* a, const std::byte* b,
                                                 std::size_t count) noexcept {
  using A = accumulator_of<T>;
  std::size_t i = 0;
  for (; i + reduction_turns <= count; i += reduction_turns) {
    HFCOMM_NO_OVERLAP
    for (std::size_t k = 0; k < reduction_turns; ++k) {
      store_element(sums, i + k, combine<Op, A>(load_element<First>(a, i + k), load_element<T>(b, i + k)));
    }
  }
  for (; i < count; ++i) {
    store_element(sums, i, combine<Op, A>(load_element<First>(a, i), load_element<T>(b, i)));
  }
}

/// out[i] = a[i] op b[i], as a result; `out` may be `a` or `b`.
template <reduce_kind Op, class T>
[[gnu::always_inline]] inline void conclude_block(std::byte* out, const std::byte* a, const std::byte* b,
                                                  std::size_t count, std::size_t inputs) noexcept {
  using A = accumulator_of<T>;
  const auto divisor = static_cast<A>(inputs);
  std::size_t i = 0;
  for (; i + reduction_turns <= count; i += reduction_turns) {
    HFCOMM_NO_OVERLAP
    for (std::size_t k = 0; k < reduction_turns; ++k) {
      const A value = combine<Op, A>(load_element<T>(a, i + k), load_element<T>(b, i + k));
      store_element(out, i + k, conclude<Op, T>(value, divisor));
    }
  }
  for (; i < count; ++i) {
    const A value = combine<Op, A>(load_element<T>(a, i), load_element<T>(b, i));
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

/// out[i] = wide[i], as a result.
template <reduce_kind Op, class T>
[[gnu::always_inline]] inline void narrow_block(const std::byte* wide, std::byte* out, std::size_t count,
                                                std::size_t inputs) noexcept {
  const auto divisor = static_cast<float>(inputs);
  std::size_t i = 0;
  for (; i + reduction_turns <= count; i += reduction_turns) {
    HFCOMM_NO_OVERLAP
    for (std::size_t k = 0; k < reduction_turns; ++k) {
      store_element(out, i + k, conclude<Op, T>(load_element<float>(wide, i + k), divisor));
    }
  }
  for (; i < count; ++i) {
    store_element(out, i, conclude<Op, T>(load_element<float>(wide, i), divisor));
  }
}

// The loops for each vector unit, in functions of its own.

#define HFCOMM_UNIT plain_blocks
#define HFCOMM_UNIT_BYTES 16
#define HFCOMM_UNIT_TARGET
#define HFCOMM_UNIT_F16C 0
#include <hfcomm/engine/reduction/detail/reduction_unit.inc>

#if defined(__x86_64__)
#define HFCOMM_UNIT avx2_blocks
#define HFCOMM_UNIT_BYTES 32
#define HFCOMM_UNIT_TARGET HFCOMM_AVX2
#define HFCOMM_UNIT_F16C 1
#include <hfcomm/engine/reduction/detail/reduction_unit.inc>

#define HFCOMM_UNIT avx512_blocks
#define HFCOMM_UNIT_BYTES 64
#define HFCOMM_UNIT_TARGET HFCOMM_AVX512
#define HFCOMM_UNIT_F16C 1
#include <hfcomm/engine/reduction/detail/reduction_unit.inc>
#endif

/// The loops of one operation on elements of one type.
struct reduction_loops {
  using combining = void (*)(std::byte*, const std::byte*, const std::byte*, std::size_t) noexcept;
  using concluding = void (*)(std::byte*, const std::byte*, const std::byte*, std::size_t, std::size_t) noexcept;
  using widening = void (*)(const std::byte*, std::byte*, std::size_t) noexcept;
  using narrowing = void (*)(const std::byte*, std::byte*, std::size_t, std::size_t) noexcept;
  combining pair = nullptr;    ///< Two inputs' elements to accumulators; null for floats of 8 bits.
  combining add = nullptr;     ///< Accumulators and elements to accumulators; null for floats of 8 bits.
  combining merge = nullptr;   ///< Accumulators to accumulators.
  concluding both = nullptr;   ///< Two inputs' elements to results; null for floats of 8 bits.
  widening widen = nullptr;    ///< Elements to accumulators; null but for floats of 8 bits.
  narrowing narrow = nullptr;  ///< Accumulators to results; null where they are elements.
};

/// The type in which sums and products are calculated. Those of two's complement integers have the same bits, signed or
/// not; signed ones would overflow.
template <class T>
struct wrapping {
  using type = T;
};
template <std::integral T>
struct wrapping<T> {
  using type = std::make_unsigned_t<T>;
};

/// Floats of 8 bits are widened and narrowed by loops of their own, with the loops of float between: their conversions
/// take so many instructions that one copy of them for each operation would be most of all kernels' code.
template <class Blocks, reduce_kind Op, class T>
[[nodiscard]] inline reduction_loops loops_of() noexcept {
  // An average is a sum that is divided at the end.
  constexpr reduce_kind step = Op == reduce_kind::average ? reduce_kind::sum : Op;
  constexpr reduce_kind end = Op == reduce_kind::average ? Op : reduce_kind::sum;
  if constexpr (is_float8<T>) {
    return {.merge = &Blocks::template combine<step, float, true>,
            .widen = &Blocks::template widen<T>,
            .narrow = &Blocks::template narrow<end, T>};
  } else if constexpr (is_narrow_float<T>) {
    return {.pair = &Blocks::template combine<step, T, false>,
            .add = &Blocks::template combine<step, T, true>,
            .merge = &Blocks::template combine<step, float, true>,
            .both = &Blocks::template conclude<Op, T>,
            .narrow = &Blocks::template narrow<end, T>};
  } else {
    constexpr auto combine = &Blocks::template combine<step, T, true>;
    return {.pair = combine, .add = combine, .merge = combine, .both = &Blocks::template conclude<Op, T>};
  }
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

/// True for the element types of gradients and counters. Reductions of other integers are rare, so one copy of their
/// loops, for the plain unit, saves compile time.
template <class T>
inline constexpr bool has_loops_for_each_unit =
    !std::integral<T> || std::same_as<T, std::int32_t> || std::same_as<T, std::int64_t>;

template <class T>
[[nodiscard]] inline reduction_loops loops_for([[maybe_unused]] vector_unit unit, reduce_kind op) noexcept {
#if defined(__x86_64__)
  if constexpr (has_loops_for_each_unit<T>) {
    switch (unit) {
      case vector_unit::avx512: return loops_for<avx512_blocks, T>(op);
      case vector_unit::avx2: return loops_for<avx2_blocks, T>(op);
      case vector_unit::plain: break;
    }
  }
#endif
  return loops_for<plain_blocks, T>(op);
}

}  // namespace hfcomm::detail

#if defined(__clang__)
#pragma clang diagnostic pop
#endif
