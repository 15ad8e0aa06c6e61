// SPDX-License-Identifier: MIT
#pragma once

#include <bit>
#include <cstdint>
#include <limits>

#include <hfcomm/core/float16.hpp>

namespace hfcomm {
namespace detail {

// These conversions have no branches, like those of 16-bit floats and for the same reason.

/// Converts an 8-bit float with `Fraction` bits of fraction and the exponent bias `Bias` to float. Exact. Its patterns
/// from `FirstNan` on are NaNs; the one before is infinity where `HasInfinity`.
template <int Fraction, int Bias, std::int32_t FirstNan, bool HasInfinity>
[[nodiscard]] constexpr float widen_float8(std::uint8_t bits) noexcept {
  const std::int32_t magnitude = bits & 0x7f;
  const std::int32_t normal = (magnitude << (23 - Fraction)) + ((127 - Bias) << 23);
  // A subnormal counts units of the smallest one: a few bits times a power of two.
  constexpr float unit = std::bit_cast<float>((127 + 1 - Bias - Fraction) << 23);
  const auto subnormal = std::bit_cast<std::int32_t>(static_cast<float>(magnitude) * unit);
  const std::int32_t number = select(mask_below(magnitude, 1 << Fraction), subnormal, normal);
  const std::int32_t finite = mask_below(magnitude, HasInfinity ? FirstNan - 1 : FirstNan);
  const std::int32_t special = 0x7f800000 | (0x00400000 & ~mask_below(magnitude, FirstNan));
  const std::int32_t result = select(finite, number, special);
  return std::bit_cast<float>(static_cast<std::uint32_t>(result) | ((bits & 0x80u) << 24));
}

/// Converts float to an 8-bit float, to nearest, ties to even. Values beyond `Largest` (a pattern), and infinity,
/// become the largest. NaN becomes `Nan`.
template <int Fraction, int Bias, std::int32_t Largest, std::int32_t Nan>
[[nodiscard]] constexpr std::uint8_t narrow_float8(float value) noexcept {
  constexpr std::int32_t smallest_normal = (127 + 1 - Bias) << 23;
  constexpr std::int32_t first_beyond = (Largest << (23 - Fraction)) + ((127 - Bias) << 23) + 1;
  constexpr std::int32_t half = (1 << (22 - Fraction)) - 1;  // half a unit, less the last bit
  // The weight of its last bit is the smallest subnormal, so that adding it rounds to multiples of that.
  constexpr std::int32_t rounding_addend = (127 + 23 + 1 - Bias - Fraction) << 23;
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto magnitude = static_cast<std::int32_t>(bits & 0x7fffffffu);
  const std::int32_t is_small = mask_below(magnitude, smallest_normal);
  const float shifted = std::bit_cast<float>(magnitude & is_small) + std::bit_cast<float>(rounding_addend);
  const std::int32_t subnormal = std::bit_cast<std::int32_t>(shifted) - rounding_addend;
  const std::int32_t clamped = select(mask_below(magnitude, first_beyond), magnitude, first_beyond - 1);
  const std::int32_t normal =
      (clamped - ((127 - Bias) << 23) + half + ((clamped >> (23 - Fraction)) & 1)) >> (23 - Fraction);
  const std::int32_t number = select(is_small, subnormal, normal);
  const std::int32_t result = select(mask_below(magnitude, 0x7f800001), number, Nan);
  return static_cast<std::uint8_t>(static_cast<std::uint32_t>(result) | ((bits >> 24) & 0x80u));
}

}  // namespace detail

/// 4 bits of exponent, 3 of fraction, up to 448; no infinity, one NaN (OCP's E4M3, torch's float8_e4m3fn, NCCL's
/// ncclFloat8e4m3). A storage type, as float16 is: sums of it are calculated in float and rounded once.
struct float8_e4m3 {
  std::uint8_t bits = 0;

  constexpr float8_e4m3() noexcept = default;
  /// Rounds to nearest, ties to even; too large becomes 448, as CUDA's conversions saturate; NaN stays NaN.
  explicit constexpr float8_e4m3(float value) noexcept : bits(detail::narrow_float8<3, 7, 0x7e, 0x7f>(value)) {}

  [[nodiscard]] static constexpr float8_e4m3 from_bits(std::uint8_t bits) noexcept {
    float8_e4m3 result;
    result.bits = bits;
    return result;
  }

  /// Exact.
  [[nodiscard]] constexpr operator float() const noexcept { return detail::widen_float8<3, 7, 0x7f, false>(bits); }
};

/// 5 bits of exponent, 2 of fraction, up to 57344: the upper half of a float16 (OCP's E5M2, torch's float8_e5m2, NCCL's
/// ncclFloat8e5m2). A storage type, as float16 is.
struct float8_e5m2 {
  std::uint8_t bits = 0;

  constexpr float8_e5m2() noexcept = default;
  /// Rounds to nearest, ties to even; too large becomes 57344, infinity too, as CUDA's conversions saturate. NaN stays
  /// NaN.
  explicit constexpr float8_e5m2(float value) noexcept : bits(detail::narrow_float8<2, 15, 0x7b, 0x7e>(value)) {}

  [[nodiscard]] static constexpr float8_e5m2 from_bits(std::uint8_t bits) noexcept {
    float8_e5m2 result;
    result.bits = bits;
    return result;
  }

  /// Exact.
  [[nodiscard]] constexpr operator float() const noexcept { return detail::widen_float8<2, 15, 0x7d, true>(bits); }
};

}  // namespace hfcomm

template <>
class std::numeric_limits<hfcomm::float8_e4m3> : public std::numeric_limits<float> {
  using T = hfcomm::float8_e4m3;

 public:
  static constexpr bool is_iec559 = false;
  static constexpr bool has_infinity = false;
  static constexpr bool has_signaling_NaN = false;  // NOLINT(readability-identifier-naming): the standard's name
  static constexpr int digits = 4;
  static constexpr int digits10 = 0;
  static constexpr int max_digits10 = 3;
  static constexpr int min_exponent = -5;
  static constexpr int min_exponent10 = -1;
  static constexpr int max_exponent = 9;
  static constexpr int max_exponent10 = 2;
  static constexpr T min() noexcept { return T::from_bits(0x08); }
  static constexpr T max() noexcept { return T::from_bits(0x7e); }
  static constexpr T lowest() noexcept { return T::from_bits(0xfe); }
  static constexpr T epsilon() noexcept { return T::from_bits(0x20); }
  static constexpr T round_error() noexcept { return T::from_bits(0x30); }
  static constexpr T infinity() noexcept { return T(); }
  static constexpr T quiet_NaN() noexcept { return T::from_bits(0x7f); }
  static constexpr T signaling_NaN() noexcept { return T(); }
  static constexpr T denorm_min() noexcept { return T::from_bits(0x01); }
};

template <>
class std::numeric_limits<hfcomm::float8_e5m2> : public std::numeric_limits<float> {
  using T = hfcomm::float8_e5m2;

 public:
  static constexpr bool is_iec559 = false;
  static constexpr int digits = 3;
  static constexpr int digits10 = 0;
  static constexpr int max_digits10 = 2;
  static constexpr int min_exponent = -13;
  static constexpr int min_exponent10 = -4;
  static constexpr int max_exponent = 16;
  static constexpr int max_exponent10 = 4;
  static constexpr T min() noexcept { return T::from_bits(0x04); }
  static constexpr T max() noexcept { return T::from_bits(0x7b); }
  static constexpr T lowest() noexcept { return T::from_bits(0xfb); }
  static constexpr T epsilon() noexcept { return T::from_bits(0x34); }
  static constexpr T round_error() noexcept { return T::from_bits(0x38); }
  static constexpr T infinity() noexcept { return T::from_bits(0x7c); }
  static constexpr T quiet_NaN() noexcept { return T::from_bits(0x7e); }
  static constexpr T signaling_NaN() noexcept { return T::from_bits(0x7d); }
  static constexpr T denorm_min() noexcept { return T::from_bits(0x01); }
};
