// SPDX-License-Identifier: MIT
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include <hfcomm/core/float16.hpp>
#include <hfcomm/core/float8.hpp>
#include <hfcomm/core/std_template.hpp>

namespace hfcomm {

/// The element types of reductions. `none` marks bytes that are only moved.
enum class element_type : std::uint8_t {
  none,
  int8,
  int16,
  int32,
  int64,
  uint8,
  uint16,
  uint32,
  uint64,
  float16,
  bfloat16,
  float32,
  float64,
  float8_e4m3,
  float8_e5m2,
  complex64,   ///< Two of float32, as torch counts bits.
  complex128,  ///< Two of float64.
};

/// The last element type, for loops over all of them.
inline constexpr element_type last_element_type = element_type::complex128;

[[nodiscard]] constexpr std::string_view to_string(element_type type) noexcept {
  constexpr std::string_view names[] = {"none",    "int8",        "int16",       "int32",     "int64",     "uint8",
                                        "uint16",  "uint32",      "uint64",      "float16",   "bfloat16",  "float32",
                                        "float64", "float8_e4m3", "float8_e5m2", "complex64", "complex128"};
  const auto index = static_cast<std::size_t>(type);
  return index < std::size(names) ? names[index] : "unknown";
}

/// Returns the bytes per element; 1 for `none`.
[[nodiscard]] constexpr std::size_t size_of(element_type type) noexcept {
  constexpr std::size_t sizes[] = {1, 1, 2, 4, 8, 1, 2, 4, 8, 2, 2, 4, 8, 1, 1, 8, 16};
  const auto index = static_cast<std::size_t>(type);
  return index < std::size(sizes) ? sizes[index] : 1;
}

/// The bytes of the largest element.
inline constexpr std::size_t largest_element_bytes = [] {
  std::size_t largest = 1;
  for (auto type = element_type::none; type != last_element_type;) {
    type = static_cast<element_type>(static_cast<std::uint8_t>(type) + 1);
    largest = size_of(type) > largest ? size_of(type) : largest;
  }
  return largest;
}();

[[nodiscard]] constexpr bool is_floating_point(element_type type) noexcept {
  return type >= element_type::float16 && type <= element_type::float8_e5m2;
}

[[nodiscard]] constexpr bool is_complex(element_type type) noexcept {
  return type == element_type::complex64 || type == element_type::complex128;
}

/// The element type of a type that hfcomm does not know. May be specialized for a trivially copyable class that has the
/// same bits as one of the above. The class is then `plain`, and reductions accept it. <hfcomm/nccl.hpp> does so for
/// CUDA's 16-bit and 8-bit floats:
/// `template <> inline constexpr auto hfcomm::enable_element_type<my_half> = hfcomm::element_type::float16;`.
template <class T>
inline constexpr element_type enable_element_type = element_type::none;

namespace detail {

template <class T>
consteval element_type deduce_element_type() {
  using U = std::remove_cv_t<T>;
  if constexpr (std::same_as<U, hfcomm::float16>) {
    return element_type::float16;
  } else if constexpr (std::same_as<U, hfcomm::bfloat16>) {
    return element_type::bfloat16;
  } else if constexpr (std::same_as<U, hfcomm::float8_e4m3>) {
    return element_type::float8_e4m3;
  } else if constexpr (std::same_as<U, hfcomm::float8_e5m2>) {
    return element_type::float8_e5m2;
  } else if constexpr (std::same_as<U, float>) {
    return element_type::float32;
  } else if constexpr (std::same_as<U, double>) {
    return element_type::float64;
  } else if constexpr (is_complex_of<U, float>) {
    return element_type::complex64;
  } else if constexpr (is_complex_of<U, double>) {
    return element_type::complex128;
  } else if constexpr (std::integral<U> && !std::same_as<U, bool> && sizeof(U) <= 8) {
    // By width, not by name: long and long long are the same wire type, and so are char and int8_t.
    constexpr bool is_signed = std::is_signed_v<U>;
    switch (sizeof(U)) {
      case 1: return is_signed ? element_type::int8 : element_type::uint8;
      case 2: return is_signed ? element_type::int16 : element_type::uint16;
      case 4: return is_signed ? element_type::int32 : element_type::uint32;
      default: return is_signed ? element_type::int64 : element_type::uint64;
    }
  } else {
    constexpr element_type type = enable_element_type<U>;
    if constexpr (type != element_type::none) {
      static_assert(sizeof(U) == size_of(type), "hfcomm::enable_element_type needs a type of the element type's size");
      static_assert(std::is_trivially_copyable_v<U>, "hfcomm::enable_element_type needs a trivially copyable type");
    }
    return type;
  }
}

}  // namespace detail

/// The wire type of T; `none` where T cannot be reduced.
template <class T>
inline constexpr element_type element_type_of = detail::deduce_element_type<T>();

/// A type that `reduce`, `all_reduce` and the dictionary reductions can add up: every integer but bool, float, double,
/// float16, bfloat16, float8_e4m3, float8_e5m2, std::complex of float and double, and what `enable_element_type` names.
template <class T>
concept reducible_element = element_type_of<T> != element_type::none;

}  // namespace hfcomm
