// SPDX-License-Identifier: MIT
#pragma once

#include <concepts>
#include <cstddef>
#include <optional>
#include <string_view>
#include <type_traits>

namespace hfcomm::detail {

/// Takes a decimal number from the beginning of a text; nullopt where there is none that fits. Without <charconv>,
/// which every program would parse.
template <std::integral Number = int>
std::optional<Number> take_number(std::string_view& text) noexcept {
  const bool is_negative = std::is_signed_v<Number> && text.starts_with('-');
  const std::size_t first = is_negative ? 1 : 0;
  std::size_t end = first;
  Number number = 0;
  for (; end < text.size() && text[end] >= '0' && text[end] <= '9'; ++end) {
    const auto digit = static_cast<Number>(text[end] - '0');
    if (__builtin_mul_overflow(number, Number{10}, &number) ||
        (is_negative ? __builtin_sub_overflow(number, digit, &number)
                     : __builtin_add_overflow(number, digit, &number))) {
      return std::nullopt;
    }
  }
  if (end == first) {
    return std::nullopt;
  }
  text.remove_prefix(end);
  return number;
}

/// Takes a character from the beginning of a text, if it is there.
inline bool take_character(std::string_view& text, char wanted) noexcept {
  const bool is_there = text.starts_with(wanted);
  text.remove_prefix(is_there ? 1 : 0);
  return is_there;
}

/// Returns the whole text as a number; nullopt where it is none.
template <class Number = int>
std::optional<Number> whole_number(std::string_view text) noexcept {
  const auto number = take_number<Number>(text);
  return text.empty() ? number : std::nullopt;
}

}  // namespace hfcomm::detail
