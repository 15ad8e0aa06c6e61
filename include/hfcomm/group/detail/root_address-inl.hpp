// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <hfcomm/core/config.hpp>
#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/core/detail/numbers.hpp>
#include <hfcomm/core/hash.hpp>
#include <hfcomm/core/std_algorithm.hpp>
#include <hfcomm/group/detail/root_address.hpp>
#include <hfcomm/group/environment.hpp>

namespace hfcomm::detail {

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
    result.port = whole_number<std::uint16_t>(port);
    if (!result.port || *result.port == 0) {
      return std::nullopt;
    }
  }
  return result;
}

namespace host_list {

/// Returns the first number of items between brackets, such as "01-04,7", with its zeros; nullopt where one of them is
/// malformed.
[[gnu::cold]] inline std::optional<std::string_view> first_number(std::string_view items) {
  constexpr std::uint64_t largest = 999'999'999;
  std::string_view number;
  do {
    const auto comma = items.find(',');
    const auto item = items.substr(0, comma);
    const auto dash = item.find('-');
    const auto low = item.substr(0, dash);
    const auto first = whole_number<std::uint64_t>(low);
    const auto last = dash == std::string_view::npos ? first : whole_number<std::uint64_t>(item.substr(dash + 1));
    items.remove_prefix(comma == std::string_view::npos ? items.size() : comma + 1);
    if (!first || !last || *last < *first || *last > largest || low.size() > 9 ||
        (comma != std::string_view::npos && items.empty())) {
      return std::nullopt;
    }
    number = number.empty() ? low : number;
  } while (!items.empty());
  return number;
}

/// Removes the first name of a list, which ends at a comma outside of brackets. Returns the first host that it stands
/// for; nullopt where it is malformed.
[[gnu::cold]] inline std::optional<std::string> take_name(std::string_view& list) {
  constexpr int most_pieces = 16;  // texts, and numbers between brackets
  constexpr auto is_in_no_name = [](unsigned char c) {
    return c <= ' ' || c == 0x7f || c == ']' || c == '(' || c == '/';
  };
  std::string host;
  for (int pieces = 0; !list.empty() && list.front() != ','; ++pieces) {
    const bool is_number = list.front() == '[';
    const auto end = is_number ? list.find(']') : list.find_first_of(",[");
    const auto piece = list.substr(0, end);
    const auto text = !is_number                      ? std::optional(piece)
                      : end != std::string_view::npos ? first_number(piece.substr(1))
                                                      : std::nullopt;
    if (pieces == most_pieces || !text || std::any_of(text->begin(), text->end(), is_in_no_name)) {
      return std::nullopt;
    }
    host += *text;
    list.remove_prefix(piece.size() + (is_number ? 1 : 0));
  }
  return host.empty() ? std::nullopt : std::optional(host);
}

}  // namespace host_list

HFCOMM_INLINE std::optional<std::string> first_host(std::string_view list) {
  auto first = host_list::take_name(list);
  for (auto next = first; next && !list.empty();) {
    list.remove_prefix(1);  // the comma
    next = host_list::take_name(list);
    first = next ? first : std::nullopt;
  }
  return first;
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
