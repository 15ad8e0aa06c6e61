// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstdio>
#include <cstdlib>

#include <hfcomm/core/config.hpp>
#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/engine/call_text.hpp>

namespace hfcomm::engines {

HFCOMM_INLINE std::string format_number(double number) {
  std::array<char, 32> text{};
  for (const int digits : {6, 9, 17}) {  // 17 tell every double from every other one
    std::snprintf(text.data(), text.size(), "%.*g", digits, number);
    if (std::strtod(text.data(), nullptr) == number) {
      break;
    }
  }
  return text.data();
}

HFCOMM_INLINE std::string elements_text(const operation& call, std::uint64_t bytes) {
  return call.element == element_type::none
             ? detail::concat({bytes, " bytes"})
             : detail::concat({bytes / size_of(call.element), " x ", to_string(call.element)});
}

HFCOMM_INLINE std::string call_name(const operation& call) {
  std::string name = call.name.text;
  if (!call.type_name.empty()) {
    detail::append(name, {'<', call.type_name.substr(0, 80), call.type_name.size() > 80 ? "...>" : ">"});
  }
  return name;
}

[[gnu::cold]] HFCOMM_INLINE std::string list_ranks(std::span<const int> ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t index = 0; index < ranks.size(); ++index) {
    detail::append(text, {index == 0 ? "" : index + 1 == ranks.size() ? " and " : ", ", ranks[index]});
  }
  return text;
}

HFCOMM_INLINE std::string no_such_rank(std::string_view what, int rank, int size) {
  return detail::concat({what, ' ', rank, " is not a rank of this group of ", size});
}

[[gnu::cold]] HFCOMM_INLINE std::string format_duration(std::chrono::nanoseconds duration) {
  const auto milliseconds = std::chrono::duration_cast<std::chrono::milliseconds>(duration).count();
  if (milliseconds < 1000) {
    return detail::concat({milliseconds, " ms"});
  }
  if (milliseconds < 120'000) {
    const auto tenths = milliseconds / 100;
    return detail::concat({tenths / 10, tenths % 10 != 0 ? detail::concat({'.', tenths % 10}) : std::string(), " s"});
  }
  return detail::concat({milliseconds / 60'000, " min"});
}

}  // namespace hfcomm::engines
