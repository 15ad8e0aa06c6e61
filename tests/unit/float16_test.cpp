// SPDX-License-Identifier: MIT
#include <bit>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <type_traits>

#include <doctest/doctest.h>

#include <hfcomm/core/float16.hpp>

namespace {

using hfcomm::bfloat16;
using hfcomm::float16;

/// How many bits the fraction has, how many the exponent.
template <class T>
struct layout;
template <>
struct layout<float16> {
  static constexpr int fraction = 10;
  static constexpr int exponent = 5;
};
template <>
struct layout<bfloat16> {
  static constexpr int fraction = 7;
  static constexpr int exponent = 8;
};

template <class T>
constexpr std::uint32_t infinity_bits = ((1u << layout<T>::exponent) - 1u) << layout<T>::fraction;

/// The value of a finite pattern by the definition of the format. Infinity's pattern counts as the next larger number.
template <class T>
double value_of(std::uint32_t bits) {
  constexpr int fraction_bits = layout<T>::fraction;
  constexpr int bias = (1 << (layout<T>::exponent - 1)) - 1;
  const auto exponent = static_cast<int>((bits & 0x7fffu) >> fraction_bits);
  const auto fraction = static_cast<int>(bits & ((1u << fraction_bits) - 1u));
  const double magnitude = exponent == 0 ? std::ldexp(fraction, 1 - bias - fraction_bits)
                                         : std::ldexp(fraction + (1 << fraction_bits), exponent - bias - fraction_bits);
  return (bits & 0x8000u) != 0 ? -magnitude : magnitude;
}

std::uint32_t bits_of(float value) { return std::bit_cast<std::uint32_t>(value); }

/// Counts errors and remembers the first, so that a loop over all patterns is one check.
struct tally {
  int wrong = 0;
  std::uint32_t first = 0;

  void expect(bool right, std::uint32_t what) {
    if (!right && wrong++ == 0) {
      first = what;
    }
  }
  void check() const {
    CAPTURE(first);
    CHECK(wrong == 0);
  }
};

template <class T>
constexpr bool is_plain =
    sizeof(T) == 2 && std::is_trivially_copyable_v<T> && std::is_standard_layout_v<T> &&
    !std::is_convertible_v<float, T> && std::is_convertible_v<T, float> && std::is_nothrow_constructible_v<T, float>;
static_assert(is_plain<float16> && is_plain<bfloat16>);

// Everything works while compiling, NaN and infinity included.
static_assert(float16().bits == 0 && bfloat16().bits == 0);
static_assert(float16(1.0f).bits == 0x3c00 && bfloat16(1.0f).bits == 0x3f80);
static_assert(float16(-2.5f) == -2.5f && bfloat16(-2.5f) == -2.5f);
static_assert(float16(0x1p-24f).bits == 1 && bfloat16(0x1p-133f).bits == 1);
static_assert(float16(std::numeric_limits<float>::infinity()).bits == 0x7c00);
static_assert(bfloat16(std::numeric_limits<float>::infinity()).bits == 0x7f80);
static_assert(float16(std::numeric_limits<float>::quiet_NaN()).bits == 0x7e00);
static_assert(bfloat16(std::numeric_limits<float>::quiet_NaN()).bits == 0x7fc0);

}  // namespace

TEST_CASE_TEMPLATE("16-bit floats: every pattern widens to its value and converts back", T, float16, bfloat16) {
  tally widened;
  tally returned;
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const T element = T::from_bits(static_cast<std::uint16_t>(bits));
    const float value = element;
    const std::uint32_t magnitude = bits & 0x7fffu;
    if (magnitude < infinity_bits<T>) {
      widened.expect(static_cast<double>(value) == value_of<T>(bits), bits);
    } else if (magnitude == infinity_bits<T>) {
      widened.expect(std::isinf(value), bits);
    } else {
      widened.expect(std::isnan(value), bits);
    }
    widened.expect(std::signbit(value) == ((bits & 0x8000u) != 0), bits);
    const std::uint32_t quiet = magnitude > infinity_bits<T> ? 1u << (layout<T>::fraction - 1) : 0u;
    returned.expect(T(value).bits == (bits | quiet), bits);
  }
  widened.check();
  returned.check();
}

TEST_CASE_TEMPLATE("16-bit floats: conversion rounds to nearest, ties to even", T, float16, bfloat16) {
  // The last pair is the largest number and infinity: there the upper neighbour is the number that would come next.
  tally rounded;
  for (std::uint32_t low = 0; low < infinity_bits<T>; ++low) {
    const std::uint32_t high = low + 1;
    const auto middle = static_cast<float>((value_of<T>(low) + value_of<T>(high)) / 2);  // exact: one more bit
    const float below = std::bit_cast<float>(bits_of(middle) - 1);
    const float above = std::bit_cast<float>(bits_of(middle) + 1);
    const std::uint32_t even = (low & 1u) == 0 ? low : high;
    rounded.expect(T(middle).bits == even, low);
    rounded.expect(T(below).bits == low, low);
    rounded.expect(T(above).bits == high, low);
    rounded.expect(T(-middle).bits == (even | 0x8000u), low);
    rounded.expect(T(-below).bits == (low | 0x8000u), low);
    rounded.expect(T(-above).bits == (high | 0x8000u), low);
  }
  rounded.check();
}

TEST_CASE_TEMPLATE("16-bit floats: overflow becomes infinity and underflow zero, both with their sign", T, float16,
                   bfloat16) {
  const float infinity = std::numeric_limits<float>::infinity();
  CHECK(T(std::numeric_limits<float>::max()).bits == infinity_bits<T>);
  CHECK(T(std::numeric_limits<float>::lowest()).bits == (infinity_bits<T> | 0x8000u));
  CHECK(T(infinity).bits == infinity_bits<T>);
  CHECK(T(-infinity).bits == (infinity_bits<T> | 0x8000u));
  CHECK(T(0.0f).bits == 0);
  CHECK(T(-0.0f).bits == 0x8000);
  CHECK(T(std::numeric_limits<float>::denorm_min()).bits == 0);
  CHECK(T(-std::numeric_limits<float>::denorm_min()).bits == 0x8000);
}

TEST_CASE("float16: the limits of its range round correctly") {
  CHECK(float16(65504.0f).bits == 0x7bff);
  CHECK(float16(65519.996f).bits == 0x7bff);
  CHECK(float16(65520.0f).bits == 0x7c00);
  CHECK(float16(65536.0f).bits == 0x7c00);
  CHECK(float16(0x1p-14f).bits == 0x0400);
  CHECK(float16(0x1.ff8p-15f).bits == 0x03ff);
  CHECK(float16(0x1.ffbffep-15f).bits == 0x03ff);
  CHECK(float16(0x1.ffcp-15f).bits == 0x0400);  // a tie, up into the normal numbers
  CHECK(float16(0x1p-24f).bits == 0x0001);
  CHECK(float16(0x1p-25f).bits == 0x0000);  // a tie, down to even
  CHECK(float16(0x1.000002p-25f).bits == 0x0001);
}

TEST_CASE_TEMPLATE("16-bit floats: NaN stays a quiet NaN with its sign, whatever its payload", T, float16, bfloat16) {
  tally nans;
  for (std::uint32_t sign : {0u, 0x80000000u}) {
    for (int bit = 0; bit < 23; ++bit) {
      for (std::uint32_t payload : {1u << bit, (2u << bit) - 1u, 0x7fffffu ^ (0x3fffffu >> bit)}) {
        const std::uint32_t bits = sign | 0x7f800000u | payload;
        const T result(std::bit_cast<float>(bits));
        nans.expect(std::isnan(static_cast<float>(result)), bits);
        nans.expect((result.bits >> (layout<T>::fraction - 1) & 1) == 1, bits);
        nans.expect((result.bits & 0x8000u) == sign >> 16, bits);
      }
    }
  }
  nans.check();
}

TEST_CASE_TEMPLATE("16-bit floats: comparisons are those of float", T, float16, bfloat16) {
  const T one(1.0f);
  const T two(2.0f);
  const T nan = std::numeric_limits<T>::quiet_NaN();
  CHECK(one == T(1.0f));
  CHECK(one != two);
  CHECK(one < two);
  CHECK(two >= one);
  CHECK(one == 1);
  CHECK(one < 1.5);
  CHECK(T(0.0f) == T(-0.0f));
  CHECK_FALSE(nan == nan);
  CHECK_FALSE(nan < one);
  CHECK_FALSE(one < nan);
}

TEST_CASE_TEMPLATE("16-bit floats: numeric_limits describe the format", T, float16, bfloat16) {
  using limits = std::numeric_limits<T>;
  static_assert(limits::is_specialized && limits::is_signed && !limits::is_integer && !limits::is_exact);
  static_assert(limits::has_infinity && limits::has_quiet_NaN && limits::radix == 2);
  static_assert(limits::digits == layout<T>::fraction + 1);
  static_assert(limits::max_exponent == 1 << (layout<T>::exponent - 1));
  static_assert(limits::min_exponent == 3 - limits::max_exponent);
  const auto widened = [](T value) { return static_cast<double>(static_cast<float>(value)); };
  CHECK(limits::max().bits == infinity_bits<T> - 1);
  CHECK(limits::lowest() == -limits::max());
  CHECK(widened(limits::min()) == std::ldexp(1.0, limits::min_exponent - 1));
  CHECK(widened(limits::denorm_min()) == std::ldexp(1.0, limits::min_exponent - limits::digits));
  CHECK(widened(limits::epsilon()) == std::ldexp(1.0, 1 - limits::digits));
  CHECK(limits::epsilon().bits != 0);
  CHECK(T(1.0f + limits::epsilon()).bits == T(1.0f).bits + 1);
  CHECK(limits::round_error() == 0.5f);
  CHECK(std::isinf(static_cast<float>(limits::infinity())));
  CHECK(std::isnan(static_cast<float>(limits::quiet_NaN())));
  CHECK(std::isnan(static_cast<float>(limits::signaling_NaN())));
  CHECK(limits::digits10 == static_cast<int>((limits::digits - 1) * std::log10(2.0)));
  CHECK(limits::max_digits10 == static_cast<int>(std::ceil(limits::digits * std::log10(2.0) + 1)));
  CHECK(limits::max_exponent10 == static_cast<int>(std::floor(std::log10(widened(limits::max())))));
  CHECK(limits::min_exponent10 == static_cast<int>(std::ceil(std::log10(widened(limits::min())))));
}
