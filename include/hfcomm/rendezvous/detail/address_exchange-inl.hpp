// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <hfcomm/core/config.hpp>
#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/core/detail/numbers.hpp>
#include <hfcomm/core/error.hpp>
#include <hfcomm/rendezvous/address_exchange.hpp>

namespace hfcomm::rendezvous {

namespace address_text {

inline constexpr std::string_view magic = "hfcomm1";
inline constexpr std::size_t most_items = most_published_hosts;

/// Removes what stands before the first separator, and it; returns the former.
inline std::string_view take_until(std::string_view& text, char separator) {
  const auto end = text.find(separator);
  const auto part = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return part;
}

/// Returns whether a host or nonce can stand in the text.
inline bool is_plain(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.' || c == ':' ||
           c == '-' || c == '_' || c == '%';
  });
}

/// Returns the items between commas, from 1 to most_items; nullopt for none, or too many, or an empty one.
inline std::optional<std::vector<std::string_view>> items_of(std::string_view list) {
  std::vector<std::string_view> items;
  if (list.ends_with(',')) {
    return std::nullopt;
  }
  do {
    items.push_back(take_until(list, ','));
    if (items.back().empty() || items.size() > most_items) {
      return std::nullopt;
    }
  } while (!list.empty());
  return items;
}

}  // namespace address_text

HFCOMM_INLINE std::string to_text(const root_address& address) {
  std::string text = detail::concat({address_text::magic, '/', address.nonce, '/'});
  for (const auto& host : address.hosts) {
    detail::append(text, {&host == &address.hosts.front() ? "" : ",", host});
  }
  text += '/';
  for (const auto& port : address.ports) {
    detail::append(text, {&port == &address.ports.front() ? "" : ",", port});
  }
  if (text.size() > longest_root_address || !parse_root_address(text)) {
    detail::throw_error<engine_error>({"\"", text.substr(0, longest_root_address), "\" is no address for the root"});
  }
  return text;
}

HFCOMM_INLINE std::optional<root_address> parse_root_address(std::string_view text) {
  using namespace address_text;
  if (text.size() > longest_root_address || std::count(text.begin(), text.end(), '/') != 3 ||
      take_until(text, '/') != magic) {
    return std::nullopt;
  }
  root_address result;
  result.nonce = take_until(text, '/');
  const auto hosts = items_of(take_until(text, '/'));
  const auto ports = items_of(text);
  if (!hosts || !ports || !is_plain(result.nonce)) {
    return std::nullopt;
  }
  for (const auto host : *hosts) {
    if (!is_plain(host)) {
      return std::nullopt;
    }
    result.hosts.emplace_back(host);
  }
  for (const auto digits : *ports) {
    const auto port = detail::whole_number<std::uint16_t>(digits);
    if (port.value_or(0) == 0) {
      return std::nullopt;
    }
    result.ports.push_back(*port);
  }
  return result;
}

HFCOMM_INLINE void finish_exchange(address_exchange& exchange, deadline give_up, std::string_view whom) {
  for (auto pause = std::chrono::microseconds(200); !exchange.is_done();
       pause = std::min(pause * 2, std::chrono::microseconds(20'000))) {
    if (give_up.passed()) {
      detail::throw_error<timeout_error>({"timed out: the address of rank 0's machine has not come from ", whom},
                                         std::vector<int>{0});
    }
    std::this_thread::sleep_for(pause);
  }
}

namespace exchanges {

/// An exchange through a launcher's server: all ranks pass a fence there, and can then get what was put before it.
class by_fence : public address_exchange {
 public:
  /// `server` is its name for error texts.
  by_fence(const char* server, std::string key) : server_(server), key_(std::move(key)) {}

  [[nodiscard]] bool needs_all_ranks() const noexcept override { return true; }
  void publish(const root_address& address) override { enter_fence(to_text(address)); }
  void look_up() override {
    looks_up_ = true;
    attend();
  }
  void attend() override { enter_fence({}); }

  bool is_done() override {
    if (!is_done_ && has_fence_ended()) {
      is_done_ = true;
      if (looks_up_) {
        const auto text = get(key_);
        auto address = text ? parse_root_address(*text) : std::nullopt;
        if (!address) {
          detail::throw_error<engine_error>({"the launcher's ", server_,
                                             " server has no address of rank 0's machine under ", key_, " (\"",
                                             text.value_or(""), "\"); set HFCOMM_ADDRESS to do without it"});
        }
        found_ = std::move(*address);
      }
    }
    return is_done_;
  }

 protected:
  [[nodiscard]] const std::string& key() const noexcept { return key_; }

 private:
  /// Puts the root's address, which is empty on the other ranks, and enters the fence.
  virtual void enter_fence(const std::string& address) = 0;
  virtual bool has_fence_ended() = 0;
  /// Returns what was put; nullopt where nothing was.
  virtual std::optional<std::string> get(const std::string& key) = 0;

  const char* server_;
  std::string key_;
  bool looks_up_ = false;
  bool is_done_ = false;
};

}  // namespace exchanges

}  // namespace hfcomm::rendezvous
