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

#include <hfcomm/element_type.hpp>
#include <hfcomm/engines/vector_unit.hpp>
#include <hfcomm/float16.hpp>
#include <hfcomm/float8.hpp>
#include <hfcomm/reduce_op.hpp>

// The loops of a reduction, each over at most a block of elements. g++'s -O2 vectorises only loops whose number of
// turns it knows to fit, and only where it knows that nothing overlaps in a harmful way: so there are inner loops of
// `reduction_turns`, and the promise that what is written is either the very thing that is read, or apart from it.
#if defined(__clang__)
#define HFCOMM_NO_OVERLAP _Pragma("clang loop vectorize(assume_safety)")
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
/// Minima and maxima of what will not be rounded are not `Calculated`, and stay as they are.
template <reduce_kind Op, class T, bool Calculated = false>
[[nodiscard, gnu::always_inline]] inline T conclude(accumulator_of<T> value, accumulator_of<T> inputs) noexcept {
  if constexpr (Op == reduce_kind::average) {
    value = value / inputs;
  }
  if constexpr (is_narrow_float<T>) {
    const auto bits = std::bit_cast<std::int32_t>(value);
    const std::int32_t is_number = mask_below(bits & 0x7fffffff, 0x7f800001);
    return T(std::bit_cast<float>(select(is_number, bits, 0x7fc00000)));
  } else if constexpr (std::floating_point<T> && (Calculated || (Op != reduce_kind::min && Op != reduce_kind::max))) {
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

/// out[i] = a[i] op b[i], as a result; `out` may be `a` or `b`.
template <reduce_kind Op, class T, bool Calculated = false>
[[gnu::always_inline]] inline void conclude_block(std::byte* out, const std::byte* a, const std::byte* b,
                                                  std::size_t count, std::size_t inputs) noexcept {
  using A = accumulator_of<T>;
  const auto divisor = static_cast<A>(inputs);
  std::size_t i = 0;
  for (; i + reduction_turns <= count; i += reduction_turns) {
    HFCOMM_NO_OVERLAP
    for (std::size_t k = 0; k < reduction_turns; ++k) {
      const A value = combine<Op, A>(load_element<A>(a, i + k), load_element<T>(b, i + k));
      store_element(out, i + k, conclude<Op, T, Calculated>(value, divisor));
    }
  }
  for (; i < count; ++i) {
    const A value = combine<Op, A>(load_element<A>(a, i), load_element<T>(b, i));
    store_element(out, i, conclude<Op, T, Calculated>(value, divisor));
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

// bfloat16 comes in pairs: both halves of a 32-bit word become floats and go back without moving between lanes, which
// is what costs in converting single ones. The accumulators of the words' lower halves are in the front half of the
// sums, those of the upper halves in the back half; behind these, of what makes no whole turns, one for each element.

inline constexpr std::size_t upper_sums = reduction_bytes / sizeof(float) / 2;
inline constexpr std::size_t rest_of_sums = reduction_bytes / sizeof(float) * 3 / 4;
inline constexpr std::size_t pair_turns = 2 * reduction_turns;

[[nodiscard, gnu::always_inline]] inline float lower_half(std::uint32_t word) noexcept {
  return std::bit_cast<float>(word << 16);
}
[[nodiscard, gnu::always_inline]] inline float upper_half(std::uint32_t word) noexcept {
  return std::bit_cast<float>(word & 0xffff0000u);
}
/// The upper half of the result is the rounded value; a NaN is the canonical one.
[[nodiscard, gnu::always_inline]] inline std::uint32_t round_to_half(float value) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value == value ? value : std::numeric_limits<float>::quiet_NaN());
  return bits + 0x7fffu + (bits >> 16 & 1u);
}

[[gnu::always_inline]] inline void widen_pairs(const std::byte* narrow, std::byte* sums, std::size_t count) noexcept {
  const std::size_t words = count / pair_turns * reduction_turns;
  for (std::size_t i = 0; i < words; i += reduction_turns) {
    HFCOMM_NO_OVERLAP
    for (std::size_t k = 0; k < reduction_turns; ++k) {
      const auto word = load_element<std::uint32_t>(narrow, i + k);
      store_element(sums, i + k, lower_half(word));
      store_element(sums, upper_sums + i + k, upper_half(word));
    }
  }
  for (std::size_t i = 2 * words; i < count; ++i) {
    store_element(sums, rest_of_sums + i - 2 * words, static_cast<float>(load_element<bfloat16>(narrow, i)));
  }
}

template <reduce_kind Op>
[[gnu::always_inline]] inline void combine_pairs(std::byte* sums, const std::byte* b, std::size_t count) noexcept {
  const std::size_t words = count / pair_turns * reduction_turns;
  for (std::size_t i = 0; i < words; i += reduction_turns) {
    HFCOMM_NO_OVERLAP
    for (std::size_t k = 0; k < reduction_turns; ++k) {
      const auto word = load_element<std::uint32_t>(b, i + k);
      store_element(sums, i + k, combine<Op>(load_element<float>(sums, i + k), lower_half(word)));
      store_element(sums, upper_sums + i + k,
                    combine<Op>(load_element<float>(sums, upper_sums + i + k), upper_half(word)));
    }
  }
  for (std::size_t i = 2 * words; i < count; ++i) {
    const std::size_t place = rest_of_sums + i - 2 * words;
    store_element(sums, place, combine<Op, float>(load_element<float>(sums, place), load_element<bfloat16>(b, i)));
  }
}

template <reduce_kind Op>
[[gnu::always_inline]] inline void conclude_pairs(std::byte* out, const std::byte* sums, const std::byte* b,
                                                  std::size_t count, std::size_t inputs) noexcept {
  const auto divisor = static_cast<float>(inputs);
  const std::size_t words = count / pair_turns * reduction_turns;
  for (std::size_t i = 0; i < words; i += reduction_turns) {
    HFCOMM_NO_OVERLAP
    for (std::size_t k = 0; k < reduction_turns; ++k) {
      const auto word = load_element<std::uint32_t>(b, i + k);
      float lower = combine<Op>(load_element<float>(sums, i + k), lower_half(word));
      float upper = combine<Op>(load_element<float>(sums, upper_sums + i + k), upper_half(word));
      if constexpr (Op == reduce_kind::average) {
        lower = lower / divisor;
        upper = upper / divisor;
      }
      store_element(out, i + k, round_to_half(lower) >> 16 | (round_to_half(upper) & 0xffff0000u));
    }
  }
  for (std::size_t i = 2 * words; i < count; ++i) {
    const float value =
        combine<Op, float>(load_element<float>(sums, rest_of_sums + i - 2 * words), load_element<bfloat16>(b, i));
    store_element(out, i, conclude<Op, bfloat16>(value, divisor));
  }
}

/// The loops for one vector unit, in functions of its own.
struct plain_blocks {
  template <reduce_kind Op, class T>
  static void combine(std::byte* sums, [[maybe_unused]] const std::byte* a, const std::byte* b,
                      std::size_t count) noexcept {
    if constexpr (std::same_as<T, bfloat16>) {
      combine_pairs<Op>(sums, b, count);
    } else {
      combine_block<Op, T>(sums, a, b, count);
    }
  }
  template <reduce_kind Op, class T>
  static void conclude(std::byte* out, const std::byte* a, const std::byte* b, std::size_t count,
                       std::size_t inputs) noexcept {
    if constexpr (std::same_as<T, bfloat16>) {
      conclude_pairs<Op>(out, a, b, count, inputs);
    } else {
      conclude_block<Op, T>(out, a, b, count, inputs);
    }
  }
  template <class T>
  static void widen(const std::byte* narrow, std::byte* wide, std::size_t count) noexcept {
    if constexpr (std::same_as<T, bfloat16>) {
      widen_pairs(narrow, wide, count);
    } else {
      widen_block<T>(narrow, wide, count);
    }
  }
};

#if defined(__x86_64__)

/// binary16 has instructions of its own, which no compiler takes for our bit arithmetic. In assembly, because the
/// header of the intrinsics would double what a user's compiler has to read. Never inlined: whoever calls these expects
/// all vector registers to be gone; and `vzeroupper`, because the compiler does not know that they are used.
HFCOMM_AVX2 [[gnu::noinline]] inline void widen_float16_avx2(const std::byte* narrow, std::byte* wide,
                                                             std::size_t groups) noexcept {
  for (; groups != 0; --groups, narrow += 16, wide += 32) {
    asm volatile("vcvtph2ps (%0), %%ymm0\n\tvmovups %%ymm0, (%1)" : : "r"(narrow), "r"(wide) : "xmm0", "memory");
  }
  asm volatile("vzeroupper");
}

/// To nearest, ties to even. NaNs are canonical already.
HFCOMM_AVX2 [[gnu::noinline]] inline void narrow_float16_avx2(const std::byte* wide, std::byte* narrow,
                                                              std::size_t groups) noexcept {
  for (; groups != 0; --groups, wide += 32, narrow += 16) {
    asm volatile("vmovups (%0), %%ymm0\n\tvcvtps2ph $0, %%ymm0, (%1)" : : "r"(wide), "r"(narrow) : "xmm0", "memory");
  }
  asm volatile("vzeroupper");
}

HFCOMM_AVX512 [[gnu::noinline]] inline void widen_float16_avx512(const std::byte* narrow, std::byte* wide,
                                                                 std::size_t groups) noexcept {
  for (; groups != 0; --groups, narrow += 32, wide += 64) {
    asm volatile("vcvtph2ps (%0), %%zmm0\n\tvmovups %%zmm0, (%1)" : : "r"(narrow), "r"(wide) : "xmm0", "memory");
  }
  asm volatile("vzeroupper");
}

HFCOMM_AVX512 [[gnu::noinline]] inline void narrow_float16_avx512(const std::byte* wide, std::byte* narrow,
                                                                  std::size_t groups) noexcept {
  for (; groups != 0; --groups, wide += 64, narrow += 32) {
    asm volatile("vmovups (%0), %%zmm0\n\tvcvtps2ph $0, %%zmm0, (%1)" : : "r"(wide), "r"(narrow) : "xmm0", "memory");
  }
  asm volatile("vzeroupper");
}

struct avx2_blocks {
  template <reduce_kind Op, class T>
  HFCOMM_AVX2 static void combine(std::byte* sums, [[maybe_unused]] const std::byte* a, const std::byte* b,
                                  std::size_t count) noexcept {
    if constexpr (std::same_as<T, bfloat16>) {
      combine_pairs<Op>(sums, b, count);
    } else if constexpr (std::same_as<T, float16>) {
      alignas(64) std::byte wide[reduction_bytes];
      widen<float16>(b, wide, count);
      combine_block<Op, float>(sums, a, wide, count);
    } else {
      combine_block<Op, T>(sums, a, b, count);
    }
  }
  template <reduce_kind Op, class T>
  HFCOMM_AVX2 static void conclude(std::byte* out, const std::byte* a, const std::byte* b, std::size_t count,
                                   std::size_t inputs) noexcept {
    if constexpr (std::same_as<T, bfloat16>) {
      return conclude_pairs<Op>(out, a, b, count, inputs);
    }
    std::size_t done = 0;
    if constexpr (std::same_as<T, float16>) {
      done = count / 8 * 8;
      alignas(64) std::byte wide[reduction_bytes];
      widen_float16_avx2(b, wide, count / 8);
      conclude_block<Op, float, true>(wide, a, wide, done, inputs);
      narrow_float16_avx2(wide, out, count / 8);
    }
    conclude_block<Op, T>(out + done * sizeof(T), a + done * sizeof(accumulator_of<T>), b + done * sizeof(T),
                          count - done, inputs);
  }
  template <class T>
  HFCOMM_AVX2 static void widen(const std::byte* narrow, std::byte* wide, std::size_t count) noexcept {
    if constexpr (std::same_as<T, bfloat16>) {
      return widen_pairs(narrow, wide, count);
    }
    std::size_t done = 0;
    if constexpr (std::same_as<T, float16>) {
      done = count / 8 * 8;
      widen_float16_avx2(narrow, wide, count / 8);
    }
    widen_block<T>(narrow + done * sizeof(T), wide + done * sizeof(float), count - done);
  }
};

struct avx512_blocks {
  template <reduce_kind Op, class T>
  HFCOMM_AVX512 static void combine(std::byte* sums, [[maybe_unused]] const std::byte* a, const std::byte* b,
                                    std::size_t count) noexcept {
    if constexpr (std::same_as<T, bfloat16>) {
      combine_pairs<Op>(sums, b, count);
    } else if constexpr (std::same_as<T, float16>) {
      alignas(64) std::byte wide[reduction_bytes];
      widen<float16>(b, wide, count);
      combine_block<Op, float>(sums, a, wide, count);
    } else {
      combine_block<Op, T>(sums, a, b, count);
    }
  }
  template <reduce_kind Op, class T>
  HFCOMM_AVX512 static void conclude(std::byte* out, const std::byte* a, const std::byte* b, std::size_t count,
                                     std::size_t inputs) noexcept {
    if constexpr (std::same_as<T, bfloat16>) {
      return conclude_pairs<Op>(out, a, b, count, inputs);
    }
    std::size_t done = 0;
    if constexpr (std::same_as<T, float16>) {
      done = count / 16 * 16;
      alignas(64) std::byte wide[reduction_bytes];
      widen_float16_avx512(b, wide, count / 16);
      conclude_block<Op, float, true>(wide, a, wide, done, inputs);
      narrow_float16_avx512(wide, out, count / 16);
    }
    conclude_block<Op, T>(out + done * sizeof(T), a + done * sizeof(accumulator_of<T>), b + done * sizeof(T),
                          count - done, inputs);
  }
  template <class T>
  HFCOMM_AVX512 static void widen(const std::byte* narrow, std::byte* wide, std::size_t count) noexcept {
    if constexpr (std::same_as<T, bfloat16>) {
      return widen_pairs(narrow, wide, count);
    }
    std::size_t done = 0;
    if constexpr (std::same_as<T, float16>) {
      done = count / 16 * 16;
      widen_float16_avx512(narrow, wide, count / 16);
    }
    widen_block<T>(narrow + done * sizeof(T), wide + done * sizeof(float), count - done);
  }
};

#endif

/// How a reduction is done with one operation on elements of one type.
struct reduction_loops {
  using combining = void (*)(std::byte*, const std::byte*, const std::byte*, std::size_t) noexcept;
  using concluding = void (*)(std::byte*, const std::byte*, const std::byte*, std::size_t, std::size_t) noexcept;
  using widening = void (*)(const std::byte*, std::byte*, std::size_t) noexcept;
  combining combine = nullptr;    ///< Accumulators and elements to accumulators.
  concluding conclude = nullptr;  ///< Accumulators and the last elements to results.
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
  reduction_loops loops{&Blocks::template combine<step, T>, &Blocks::template conclude<Op, T>, nullptr};
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
