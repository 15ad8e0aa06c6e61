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

/// The numbers of one item between brackets.
struct number_range {
  std::uint64_t first = 0;
  std::uint64_t last = 0;
  std::size_t width = 0;  ///< Least number of digits; the others are zeros before the number.
};

/// Removes the first item of "0-1,003", with the comma behind it. Returns false where the text is malformed.
[[gnu::cold]] inline bool take_range(std::string_view& items, number_range& range) {
  constexpr std::uint64_t largest = 999'999'999;
  const auto comma = items.find(',');
  const auto item = items.substr(0, comma);
  const auto dash = item.find('-');
  const auto low = item.substr(0, dash);
  const auto first = parse_digits(low, largest);
  const auto last = dash == std::string_view::npos ? first : parse_digits(item.substr(dash + 1), largest);
  items.remove_prefix(comma == std::string_view::npos ? items.size() : comma + 1);
  if (!first || !last || *last < *first || low.size() > 9 || (comma != std::string_view::npos && items.empty())) {
    return false;
  }
  range = {*first, *last, low.size()};
  return true;
}

[[gnu::cold]] inline bool are_ranges(std::string_view items) {
  number_range range;
  do {
    if (!take_range(items, range)) {
      return false;
    }
  } while (!items.empty());
  return true;
}

/// Returns the length of the first name, which ends at a comma outside of brackets; 0 where it is malformed.
[[gnu::cold]] inline std::size_t length_of_name(std::string_view list) {
  constexpr int most_pieces = 16;  // texts, and numbers between brackets
  constexpr auto is_in_no_name = [](unsigned char c) {
    return c <= ' ' || c == 0x7f || c == ']' || c == '(' || c == '/';
  };
  std::size_t length = 0;
  for (int pieces = 0; length < list.size() && list[length] != ','; ++pieces) {
    const auto rest = list.substr(length);
    if (pieces == most_pieces) {
      return 0;
    }
    if (rest.front() == '[') {
      const auto end = rest.find(']');
      if (end == std::string_view::npos || !are_ranges(rest.substr(1, end - 1))) {
        return 0;
      }
      length += end + 1;
    } else {
      const auto text = rest.substr(0, rest.find_first_of(",["));
      if (std::any_of(text.begin(), text.end(), is_in_no_name)) {
        return 0;
      }
      length += text.size();
    }
  }
  return length;
}

inline std::string padded(std::uint64_t number, std::size_t width) {
  std::string digits = std::to_string(number);
  return concat({std::string(width > digits.size() ? width - digits.size() : 0, '0'), digits});
}

/// Adds the names that `begin` and the rest of a well-formed name stand for, the last numbers varying fastest, until
/// there are `most`. Returns whether they all had room.
[[gnu::cold]] inline bool add_names(const std::string& begin, std::string_view rest, std::vector<std::string>& names,
                                    std::size_t most) {
  if (rest.empty()) {
    if (names.size() == most) {
      return false;
    }
    names.push_back(begin);
    return true;
  }
  if (rest.front() != '[') {
    const auto text = rest.substr(0, rest.find('['));
    return add_names(concat({begin, text}), rest.substr(text.size()), names, most);
  }
  const auto end = rest.find(']');
  number_range range;
  for (auto items = rest.substr(1, end - 1); take_range(items, range);) {
    for (std::uint64_t number = range.first; number <= range.last; ++number) {
      if (!add_names(begin + padded(number, range.width), rest.substr(end + 1), names, most)) {
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
    const std::size_t length = length_of_name(list);
    if (length == 0) {
      return {false, fits};
    }
    fits = fits && add_names({}, list.substr(0, length), names, most);
    if (length == list.size()) {
      return {true, fits};
    }
    list.remove_prefix(length + 1);
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
