// SPDX-License-Identifier: MIT
#pragma once

#include <charconv>
#include <cstddef>
#include <optional>
#include <string_view>
#include <system_error>

namespace hfcomm::detail {

/// Takes a decimal number from the beginning of a text; nullopt where there is none that fits.
template <class Number = int>
std::optional<Number> take_number(std::string_view& text) noexcept {
  Number number = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (problem != std::errc()) {
    return std::nullopt;
  }
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
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
