// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <hfcomm/core/config.hpp>
#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/core/hash.hpp>
#include <hfcomm/group/detail/root_address.hpp>
#include <hfcomm/group/environment.hpp>

namespace hfcomm::detail {

/// Returns the whole text as a number; nullopt where it is none, or more than `most`.
template <class Number>
std::optional<Number> parse_digits(std::string_view text, Number most) {
  Number value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, problem] = std::from_chars(text.data(), end, value);  // NOLINT(*stringview-data-usage): has the end
  return problem == std::errc() && stop == end && value <= most ? std::optional(value) : std::nullopt;
}

[[gnu::cold]] HFCOMM_INLINE std::optional<host_and_port> parse_host_and_port(std::string_view text) {
  host_and_port result;
  std::string_view port;
  bool has_port = false;
  if (text.starts_with('[')) {
    const auto end = text.find(']');
    if (end == std::string_view::npos || text.substr(1, end - 1).find(':') == std::string_view::npos) {
      return std::nullopt;
    }
    result.host = text.substr(1, end - 1);
    port = text.substr(end + 1);
    has_port = !port.empty();
    if (has_port && !port.starts_with(':')) {
      return std::nullopt;
    }
    port.remove_prefix(has_port ? 1 : 0);
  } else {
    const auto colon = text.find(':');
    has_port = colon != std::string_view::npos;
    result.host = text.substr(0, colon);
    port = has_port ? text.substr(colon + 1) : std::string_view();
  }
  const auto is_forbidden = [](unsigned char c) { return c <= ' ' || c == 0x7f || c == '/' || c == '[' || c == ','; };
  if (result.host.empty() || result.host.size() > 255 ||
      std::any_of(result.host.begin(), result.host.end(), is_forbidden)) {
    return std::nullopt;
  }
  if (has_port) {
    result.port = parse_digits<std::uint16_t>(port, 65535);
    if (!result.port || *result.port == 0) {
      return std::nullopt;
    }
  }
  return result;
}

namespace host_list {

/// A piece of a host's name: literal text, or the numbers between brackets.
struct piece {
  struct range {
    std::uint64_t first = 0;
    std::uint64_t last = 0;
    std::size_t width = 0;  ///< Least number of digits; the others are zeros before the number.
  };
  std::string_view text;
  std::vector<range> ranges;  ///< Empty for literal text.
};

/// Returns the ranges of "0-1,003"; nullopt where the text is none.
[[gnu::cold]] inline std::optional<std::vector<piece::range>> parse_ranges(std::string_view text) {
  constexpr std::uint64_t largest = 999'999'999;
  std::vector<piece::range> result;
  while (true) {
    const auto comma = text.find(',');
    const auto item = text.substr(0, comma);
    const auto dash = item.find('-');
    const auto low = item.substr(0, dash);
    const auto first = parse_digits(low, largest);
    const auto last = dash == std::string_view::npos ? first : parse_digits(item.substr(dash + 1), largest);
    if (!first || !last || *last < *first || low.size() > 9) {
      return std::nullopt;
    }
    result.push_back({*first, *last, low.size()});
    if (comma == std::string_view::npos) {
      return result;
    }
    text.remove_prefix(comma + 1);
  }
}

/// Removes the first name, up to a comma outside of brackets, and returns its pieces; nullopt where it is malformed.
[[gnu::cold]] inline std::optional<std::vector<piece>> take_name(std::string_view& list) {
  constexpr auto is_in_no_name = [](unsigned char c) {
    return c <= ' ' || c == 0x7f || c == ']' || c == '(' || c == '/';
  };
  std::vector<piece> pieces;
  while (!list.empty() && list.front() != ',') {
    if (list.front() == '[') {
      const auto end = list.find(']');
      auto ranges = end != std::string_view::npos ? parse_ranges(list.substr(1, end - 1)) : std::nullopt;
      if (!ranges) {
        return std::nullopt;
      }
      pieces.push_back({{}, std::move(*ranges)});
      list.remove_prefix(end + 1);
    } else {
      const auto text = list.substr(0, list.find_first_of(",["));
      if (std::any_of(text.begin(), text.end(), is_in_no_name)) {
        return std::nullopt;
      }
      pieces.push_back({text, {}});
      list.remove_prefix(text.size());
    }
  }
  return pieces.empty() ? std::nullopt : std::optional(std::move(pieces));
}

inline std::string padded(std::uint64_t number, std::size_t width) {
  std::string digits = std::to_string(number);
  return concat({std::string(width > digits.size() ? width - digits.size() : 0, '0'), digits});
}

/// Adds the names that `begin` and the pieces from `at` on stand for, the last piece varying fastest, until there are
/// `most`. Returns whether they all had room.
[[gnu::cold]] inline bool add_names(const std::vector<piece>& pieces, std::size_t at, const std::string& begin,
                                    std::vector<std::string>& names, std::size_t most) {
  if (at == pieces.size()) {
    if (names.size() == most) {
      return false;
    }
    names.push_back(begin);
    return true;
  }
  if (pieces[at].ranges.empty()) {
    return add_names(pieces, at + 1, concat({begin, pieces[at].text}), names, most);
  }
  for (const piece::range& one : pieces[at].ranges) {
    for (std::uint64_t number = one.first; number <= one.last; ++number) {
      if (!add_names(pieces, at + 1, begin + padded(number, one.width), names, most)) {
        return false;
      }
    }
  }
  return true;
}

/// Reads a whole list; collects up to `most` names. Returns whether it is well-formed, and whether all had room.
inline std::pair<bool, bool> read(std::string_view list, std::vector<std::string>& names, std::size_t most) {
  bool fits = true;
  while (true) {
    const auto pieces = take_name(list);
    if (!pieces || pieces->size() > 16) {
      return {false, fits};
    }
    fits = fits && add_names(*pieces, 0, {}, names, most);
    if (list.empty()) {
      return {true, fits};
    }
    list.remove_prefix(1);
  }
}

}  // namespace host_list

HFCOMM_INLINE std::optional<std::string> first_host(std::string_view list) {
  std::vector<std::string> names;
  return host_list::read(list, names, 1).first ? std::optional(names.front()) : std::nullopt;
}

HFCOMM_INLINE std::optional<std::vector<std::string>> expand_hosts(std::string_view list, std::size_t most) {
  std::vector<std::string> names;
  const auto [is_list, fits] = host_list::read(list, names, most);
  return is_list && fits ? std::optional(std::move(names)) : std::nullopt;
}

[[gnu::cold]] HFCOMM_INLINE std::vector<std::uint16_t> candidate_ports(std::string_view key, int epoch,
                                                                       std::uint16_t taken) {
  constexpr std::size_t count = 8;
  constexpr std::uint64_t lowest = 20000;
  constexpr std::uint64_t range = 61000 - lowest;
  std::vector<std::uint16_t> ports;
  std::uint64_t state = mix(fnv1a(key), static_cast<std::uint64_t>(epoch));
  for (std::uint64_t step = 0; ports.size() < count; ++step) {
    state = mix(state, step);
    const auto port = static_cast<std::uint16_t>(lowest + state % range);
    if (port != taken && std::find(ports.begin(), ports.end(), port) == ports.end()) {
      ports.push_back(port);
    }
  }
  return ports;
}

HFCOMM_INLINE void set_root_address(launch_environment& job, host_and_port address, std::uint16_t taken) {
  job.lookup = root_lookup::address;
  job.root_host = std::move(address.host);
  job.root_ports = address.port ? std::vector{*address.port} : candidate_ports(job.rendezvous, job.epoch, taken);
}

}  // namespace hfcomm::detail
