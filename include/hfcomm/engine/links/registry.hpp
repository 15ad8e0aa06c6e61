// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <memory>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/core/error.hpp>
#include <hfcomm/engine/links/link.hpp>

namespace hfcomm::engines {

/// A library that links can be made of.
struct link_kind {
  std::string_view name;            ///< As `link::name` returns it.
  std::string_view how_to_install;  ///< For the error where no link can be made.
  int place = 0;                    ///< The kind with the lowest one that works is taken.
  bool (*is_meant)() noexcept;      ///< Whether to try this kind where the user has named none.
  void (*prepare)();           ///< Does what every process of the job has to do; null: nothing. Throws engine_error.
  void (*abandon)() noexcept;  ///< Says that processes of the job are lost, in any process; null: nothing.
  std::unique_ptr<link> (*make)();  ///< Throws engine_error.
};

/// Returns the kinds that entrances which the program includes have registered before main.
inline std::vector<link_kind>& registered_links() {
  static std::vector<link_kind> kinds;
  return kinds;
}

/// Adds a kind. Returns true, for the initialisers of variables.
inline bool register_link(link_kind kind) {
  registered_links().push_back(kind);
  return true;
}

/// Throws engine_error with a text that begins with the link's name.
[[noreturn]] inline void throw_link_error(std::string_view name, const std::string& text,
                                          const std::source_location& where = std::source_location::current()) {
  detail::throw_error<engine_error>({-1, 0, detail::concat({"link ", name}), 0, where}, {text});
}

/// Returns an address as links publish it: the link's name before the library's own bytes.
inline std::vector<std::byte> published_address(std::string_view name, std::span<const std::byte> bytes) {
  std::vector<std::byte> address(name.size() + 1 + bytes.size());
  std::transform(name.begin(), name.end(), address.begin(), [](char one) { return static_cast<std::byte>(one); });
  std::copy(bytes.begin(), bytes.end(), address.begin() + static_cast<std::ptrdiff_t>(name.size() + 1));
  if (address.size() > 4096) {
    throw_link_error(name, detail::concat({"its address has ", address.size(), " bytes, more than 4096; name one ",
                                           "network interface in HFCOMM_INTERFACE"}));
  }
  return address;
}

/// Returns the library's own bytes of each machine's address. Throws engine_error where a machine has another link.
inline std::vector<std::vector<std::byte>> own_addresses(std::string_view name,
                                                         std::vector<std::vector<std::byte>> published) {
  for (std::size_t machine = 0; machine < published.size(); ++machine) {
    auto& address = published[machine];
    const auto end = std::find(address.begin(), address.end(), std::byte{0});
    std::string theirs;
    std::transform(address.begin(), end, std::back_inserter(theirs),
                   [](std::byte one) { return static_cast<char>(one); });
    if (end == address.end() || theirs != name) {
      throw_link_error(
          name, detail::concat({"machine ", machine, " has ",
                                end == address.end() ? "no address of a link" : detail::concat({"the link ", theirs}),
                                "; set HFCOMM_LINK to the same link on all machines"}));
    }
    address.erase(address.begin(), end + 1);
  }
  return published;
}

}  // namespace hfcomm::engines
