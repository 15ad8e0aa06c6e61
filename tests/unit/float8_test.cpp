// SPDX-License-Identifier: MIT
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

#include <doctest/doctest.h>

#include <hfcomm/core/float8.hpp>

namespace {

using hfcomm::float8_e4m3;
using hfcomm::float8_e5m2;

/// How many bits the fraction has, how the exponent is biased, and the pattern of the largest number.
template <class T>
struct layout;
template <>
struct layout<float8_e4m3> {
  static constexpr int fraction = 3;
  static constexpr int bias = 7;
  static constexpr unsigned largest = 0x7e;
};
template <>
struct layout<float8_e5m2> {
  static constexpr int fraction = 2;
  static constexpr int bias = 15;
  static constexpr unsigned largest = 0x7b;
};

/// The value of a finite pattern without sign by the definition of the format.
template <class T>
double value_of(unsigned bits) {
  constexpr int fraction_bits = layout<T>::fraction;
  const auto exponent = static_cast<int>(bits >> fraction_bits);
  const auto fraction = static_cast<int>(bits & ((1u << fraction_bits) - 1u));
  return exponent == 0 ? std::ldexp(fraction, 1 - layout<T>::bias - fraction_bits)
                       : std::ldexp(fraction + (1 << fraction_bits), exponent - layout<T>::bias - fraction_bits);
}

/// To nearest, ties to even, from all numbers there are.
template <class T>
unsigned rounded(double magnitude) {
  unsigned best = 0;
  for (unsigned bits = 1; bits <= layout<T>::largest; ++bits) {
    const double gain = std::abs(value_of<T>(best) - magnitude) - std::abs(value_of<T>(bits) - magnitude);
    if (gain > 0 || (gain == 0 && (bits & 1u) == 0)) {
      best = bits;
    }
  }
  return best;
}

static_assert(sizeof(float8_e4m3) == 1 && std::is_trivially_copyable_v<float8_e4m3>);
static_assert(!std::is_convertible_v<float, float8_e5m2> && std::is_convertible_v<float8_e5m2, float>);
static_assert(float8_e4m3(1.0f).bits == 0x38 && float8_e5m2(1.0f).bits == 0x3c);
static_assert(float8_e4m3(-2.5f) == -2.5f && float8_e5m2(-2.5f) == -2.5f);

}  // namespace

TEST_CASE_TEMPLATE("8-bit floats: every pattern widens to its value and converts back", T, float8_e4m3, float8_e5m2) {
  for (unsigned bits = 0; bits < 0x100; ++bits) {
    CAPTURE(bits);
    const T element = T::from_bits(static_cast<std::uint8_t>(bits));
    const float value = element;
    const unsigned magnitude = bits & 0x7fu;
    CHECK(std::signbit(value) == (bits >= 0x80));
    if (magnitude <= layout<T>::largest) {
      CHECK(std::abs(static_cast<double>(value)) == value_of<T>(magnitude));
      CHECK(T(value).bits == bits);
    } else if (std::is_same_v<T, float8_e5m2> && magnitude == 0x7c) {
      CHECK(std::isinf(value));
      CHECK(T(value).bits == (0x7bu | (bits & 0x80u)));
    } else {
      CHECK(std::isnan(value));
      CHECK(T(value).bits == (std::numeric_limits<T>::quiet_NaN().bits | (bits & 0x80u)));
    }
  }
}

TEST_CASE_TEMPLATE("8-bit floats: conversion rounds to nearest, ties to even", T, float8_e4m3, float8_e5m2) {
  std::vector<float> values = {0.0f,
                               1e-30f,
                               1e30f,
                               std::numeric_limits<float>::max(),
                               std::numeric_limits<float>::infinity(),
                               std::numeric_limits<float>::denorm_min()};
  for (unsigned low = 0; low < layout<T>::largest; ++low) {
    const auto middle = static_cast<float>((value_of<T>(low) + value_of<T>(low + 1)) / 2);
    for (const int step : {-1, 0, 1}) {
      values.push_back(std::bit_cast<float>(std::bit_cast<std::int32_t>(middle) + step));
    }
    values.push_back(static_cast<float>(value_of<T>(low) + 0.3 * (value_of<T>(low + 1) - value_of<T>(low))));
  }
  values.push_back(static_cast<float>(value_of<T>(layout<T>::largest) * 1.01));
  for (const float value : values) {
    CAPTURE(value);
    CHECK(T(value).bits == rounded<T>(static_cast<double>(std::min(value, 1e9f))));
    CHECK(T(-value).bits == (rounded<T>(static_cast<double>(std::min(value, 1e9f))) | 0x80u));
  }
}

TEST_CASE_TEMPLATE("8-bit floats: numeric_limits describe the format", T, float8_e4m3, float8_e5m2) {
  using limits = std::numeric_limits<T>;
  const auto widened = [](T value) { return static_cast<double>(static_cast<float>(value)); };
  CHECK(limits::digits == layout<T>::fraction + 1);
  CHECK(widened(limits::max()) == value_of<T>(layout<T>::largest));
  CHECK(widened(limits::lowest()) == -widened(limits::max()));
  CHECK(widened(limits::max()) < std::ldexp(1.0, limits::max_exponent));
  CHECK(widened(limits::max()) >= std::ldexp(1.0, limits::max_exponent - 1));
  CHECK(widened(limits::min()) == std::ldexp(1.0, limits::min_exponent - 1));
  CHECK(widened(limits::denorm_min()) == value_of<T>(1));
  CHECK(widened(limits::epsilon()) == std::ldexp(1.0, 1 - limits::digits));
  CHECK(limits::round_error() == 0.5f);
  CHECK(std::isnan(static_cast<float>(limits::quiet_NaN())));
  CHECK(limits::max_exponent10 == static_cast<int>(std::floor(std::log10(widened(limits::max())))));
  CHECK(limits::min_exponent10 == static_cast<int>(std::ceil(std::log10(widened(limits::min())))));
  CHECK(limits::max_digits10 == static_cast<int>(std::ceil(limits::digits * std::log10(2.0) + 1)));
  if constexpr (limits::has_infinity) {
    CHECK(std::isinf(static_cast<float>(limits::infinity())));
    CHECK(std::isnan(static_cast<float>(limits::signaling_NaN())));
  }
}
