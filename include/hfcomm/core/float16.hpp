// SPDX-License-Identifier: MIT
#pragma once

#include <bit>
#include <cstdint>
#include <limits>

namespace hfcomm {
namespace detail {

// The four conversions compute every case and select by masks, instead of branching to one: compilers turn conditional
// expressions back into branches, and then do not vectorise the loop around. They are bit arithmetic but for one
// int-to-float conversion and two float operations, which are exact or round exactly where the result must. None of
// them reads or makes a subnormal float, so flush-to-zero modes change nothing. The one addition that rounds relies on
// the default rounding mode, as every float addition does.

/// Returns a mask: all ones where `value < limit`, otherwise zero. Neither is negative, so the difference does not
/// overflow, and its sign tells.
[[nodiscard]] constexpr std::int32_t mask_below(std::int32_t value, std::int32_t limit) noexcept {
  return (value - limit) >> 31;
}

[[nodiscard]] constexpr std::int32_t select(std::int32_t mask, std::int32_t if_set, std::int32_t if_clear) noexcept {
  return (if_set & mask) | (if_clear & ~mask);
}

/// Converts IEEE binary16 to float. Always exact.
[[nodiscard]] constexpr float widen_float16(std::uint16_t bits) noexcept {
  constexpr std::int32_t exponent_shift = 112 << 23;  // the difference of the exponents' biases, 127 - 15
  const std::int32_t magnitude = bits & 0x7fff;
  // Infinity and NaN are shifted twice: exponent 31 becomes 255.
  const std::int32_t special_shift = exponent_shift & ~mask_below(magnitude, 0x7c00);
  const std::int32_t normal = (magnitude << 13) + exponent_shift + special_shift;
  // A subnormal counts units of 2^-24: at most ten bits, so both steps are exact and the product is a normal float.
  const auto subnormal = std::bit_cast<std::int32_t>(static_cast<float>(magnitude) * 0x1p-24f);
  const std::int32_t result = select(mask_below(magnitude, 0x0400), subnormal, normal);
  return std::bit_cast<float>(static_cast<std::uint32_t>(result) | ((bits & 0x8000u) << 16));
}

/// Converts float to IEEE binary16, to nearest, ties to even. Values that are too large become infinity. NaN becomes a
/// quiet NaN.
[[nodiscard]] constexpr std::uint16_t narrow_float16(float value) noexcept {
  constexpr std::int32_t smallest_normal = 0x38800000;  // 2^-14
  constexpr std::int32_t first_overflow = 0x47800000;   // 2^16; from 65520 on, rounding carries into infinity by itself
  constexpr std::int32_t first_nan = 0x7f800001;
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto magnitude = static_cast<std::int32_t>(bits & 0x7fffffffu);
  // Below 2^-14 the result counts units of 2^-24, which is what the last bit of a float in [0.5, 1) weighs: adding 0.5
  // rounds there, to even. Larger values are masked out first, so that no NaN gets into the addition.
  const std::int32_t is_small = mask_below(magnitude, smallest_normal);
  const float shifted = std::bit_cast<float>(magnitude & is_small) + 0.5f;
  const std::int32_t subnormal = std::bit_cast<std::int32_t>(shifted) - 0x3f000000;
  // Above, half a unit less a bit, plus the bit that makes ties even; a carry into the exponent is the right result.
  const std::int32_t clamped = select(mask_below(magnitude, first_overflow), magnitude, first_overflow);
  const std::int32_t normal = (clamped - (112 << 23) + 0x0fff + ((clamped >> 13) & 1)) >> 13;
  const std::int32_t quiet_nan = 0x7e00 | ((magnitude >> 13) & 0x03ff);
  const std::int32_t number = select(is_small, subnormal, normal);
  const std::int32_t result = select(mask_below(magnitude, first_nan), number, quiet_nan);
  return static_cast<std::uint16_t>(static_cast<std::uint32_t>(result) | ((bits >> 16) & 0x8000u));
}

/// Converts bfloat16 to float. Always exact.
[[nodiscard]] constexpr float widen_bfloat16(std::uint16_t bits) noexcept {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

/// Converts float to bfloat16, to nearest, ties to even. Values that are too large become infinity. NaN becomes a quiet
/// NaN.
[[nodiscard]] constexpr std::uint16_t narrow_bfloat16(float value) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto magnitude = static_cast<std::int32_t>(bits & 0x7fffffffu);
  const std::int32_t is_number = mask_below(magnitude, 0x7f800001);
  const std::int32_t number = (magnitude + ((0x7fff + ((magnitude >> 16) & 1)) & is_number)) >> 16;
  const std::int32_t quiet_bit = 0x0040 & ~is_number;
  return static_cast<std::uint16_t>(static_cast<std::uint32_t>(number | quiet_bit) | ((bits >> 16) & 0x8000u));
}

}  // namespace detail

/// IEEE 754 binary16: 11 significant bits, up to 65504. A storage type: it converts to float implicitly and back only
/// explicitly, so arithmetic and comparisons happen in float.
struct float16 {
  std::uint16_t bits = 0;

  constexpr float16() noexcept = default;
  /// Rounds to nearest, ties to even. From 65520 on it gives infinity; NaN stays NaN, quiet.
  explicit constexpr float16(float value) noexcept : bits(detail::narrow_float16(value)) {}

  [[nodiscard]] static constexpr float16 from_bits(std::uint16_t bits) noexcept {
    float16 result;
    result.bits = bits;
    return result;
  }

  /// Exact.
  [[nodiscard]] constexpr operator float() const noexcept { return detail::widen_float16(bits); }
};

/// The upper half of a float: 8 significant bits, float's range. A storage type, as float16 is.
struct bfloat16 {
  std::uint16_t bits = 0;

  constexpr bfloat16() noexcept = default;
  /// Rounds to nearest, ties to even. Beyond the largest bfloat16 it gives infinity; NaN stays NaN, quiet.
  explicit constexpr bfloat16(float value) noexcept : bits(detail::narrow_bfloat16(value)) {}

  [[nodiscard]] static constexpr bfloat16 from_bits(std::uint16_t bits) noexcept {
    bfloat16 result;
    result.bits = bits;
    return result;
  }

  /// Exact.
  [[nodiscard]] constexpr operator float() const noexcept { return detail::widen_bfloat16(bits); }
};

}  // namespace hfcomm

// The members that are not redefined below (signedness, infinities, rounding style, ...) are those of float.
template <>
class std::numeric_limits<hfcomm::float16> : public std::numeric_limits<float> {
  using T = hfcomm::float16;

 public:
  static constexpr int digits = 11;
  static constexpr int digits10 = 3;
  static constexpr int max_digits10 = 5;
  static constexpr int min_exponent = -13;
  static constexpr int min_exponent10 = -4;
  static constexpr int max_exponent = 16;
  static constexpr int max_exponent10 = 4;
  static constexpr T min() noexcept { return T::from_bits(0x0400); }
  static constexpr T max() noexcept { return T::from_bits(0x7bff); }
  static constexpr T lowest() noexcept { return T::from_bits(0xfbff); }
  static constexpr T epsilon() noexcept { return T::from_bits(0x1400); }
  static constexpr T round_error() noexcept { return T::from_bits(0x3800); }
  static constexpr T infinity() noexcept { return T::from_bits(0x7c00); }
  static constexpr T quiet_NaN() noexcept { return T::from_bits(0x7e00); }
  static constexpr T signaling_NaN() noexcept { return T::from_bits(0x7d00); }
  static constexpr T denorm_min() noexcept { return T::from_bits(0x0001); }
};

template <>
class std::numeric_limits<hfcomm::bfloat16> : public std::numeric_limits<float> {
  using T = hfcomm::bfloat16;

 public:
  static constexpr bool is_iec559 = false;  // the arithmetic is, but it is no interchange format of the standard
  static constexpr int digits = 8;
  static constexpr int digits10 = 2;
  static constexpr int max_digits10 = 4;
  static constexpr T min() noexcept { return T::from_bits(0x0080); }
  static constexpr T max() noexcept { return T::from_bits(0x7f7f); }
  static constexpr T lowest() noexcept { return T::from_bits(0xff7f); }
  static constexpr T epsilon() noexcept { return T::from_bits(0x3c00); }
  static constexpr T round_error() noexcept { return T::from_bits(0x3f00); }
  static constexpr T infinity() noexcept { return T::from_bits(0x7f80); }
  static constexpr T quiet_NaN() noexcept { return T::from_bits(0x7fc0); }
  static constexpr T signaling_NaN() noexcept { return T::from_bits(0x7fa0); }
  static constexpr T denorm_min() noexcept { return T::from_bits(0x0001); }
};
