// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <type_traits>

#include <hfcomm/core/element_type.hpp>
#include <hfcomm/core/float16.hpp>
#include <hfcomm/core/float8.hpp>

namespace hfcomm {

/// True if objects of a class are sent as raw bytes, whatever serialization functions the class has. May be specialized
/// for a trivially copyable class: `template <> inline constexpr bool hfcomm::enable_raw_bytes<my_class> = true;`.
template <class T>
inline constexpr bool enable_raw_bytes = false;

template <>
inline constexpr bool enable_raw_bytes<float16> = true;
template <>
inline constexpr bool enable_raw_bytes<bfloat16> = true;
template <>
inline constexpr bool enable_raw_bytes<float8_e4m3> = true;
template <>
inline constexpr bool enable_raw_bytes<float8_e5m2> = true;

namespace detail {

/// An aggregate without serialization functions, as <hfcomm/aggregates.hpp> knows it. Only that header specializes it.
template <class T>
struct aggregate_traits {
  static constexpr bool is_plain = false;
};

// Only an enumeration with a fixed underlying type can be initialized from an integer in braces. Only for such an
// enumeration is every pattern of bytes a value.
template <class T>
concept fixed_enumeration = std::is_enum_v<T> && requires { T{std::underlying_type_t<T>{}}; };

template <class T>
inline constexpr bool is_plain = [] {
  if constexpr (enable_raw_bytes<T>) {
    static_assert(std::is_class_v<T> || std::is_enum_v<T>, "hfcomm::enable_raw_bytes is for classes and enumerations");
    static_assert(std::is_trivially_copyable_v<T>, "hfcomm::enable_raw_bytes needs a trivially copyable class");
  }
  if constexpr (fixed_enumeration<T>) {  // NOLINT(*branch-clone): for some T two branches come out alike
    return enable_raw_bytes<T> || !std::same_as<std::underlying_type_t<T>, bool>;
  } else if constexpr (std::is_class_v<T>) {
    return enable_raw_bytes<T> || (std::same_as<T, std::remove_cv_t<T>> && element_type_of<T> != element_type::none) ||
           aggregate_traits<T>::is_plain;
  } else {
    return enable_raw_bytes<T> ||
           (std::integral<T> && std::same_as<T, std::remove_cv_t<T>> && !std::same_as<T, bool>) ||
           std::same_as<T, float> || std::same_as<T, double>;
  }
}();

template <class T, std::size_t n>
inline constexpr bool is_plain<std::array<T, n>> = is_plain<T> && sizeof(std::array<T, n>) == n * sizeof(T);

}  // namespace detail

/// A type whose bytes are its value, so that it may be copied as raw bytes: integers but bool, float, double, float16,
/// bfloat16, the 8-bit floats, enumerations with a fixed underlying type but bool (every `enum class`, std::byte),
/// std::complex of float and double, std::array of these, and what `enable_raw_bytes` or `enable_element_type` admits.
/// With <hfcomm/aggregates.hpp>, aggregates of these without padding, too. Never a pointer.
template <class T>
concept plain = detail::is_plain<T>;

}  // namespace hfcomm
