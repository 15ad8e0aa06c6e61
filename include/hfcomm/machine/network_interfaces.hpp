// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace hfcomm::rendezvous {

/// One address of one network interface of this machine.
struct interface_address {
  std::string interface;  ///< Its name, "eth0".
  std::string address;    ///< Numeric; with the interface behind a % where only that is unique: "fe80::1%eth0".
  bool is_up = false;     ///< Whether it works, as far as the system knows.
  bool is_ipv6 = false;
  bool is_loopback = false;
  bool is_link_local = false;  ///< Reached only by direct neighbours.
};

/// Returns the IPv4 and IPv6 addresses of this machine, in the system's order. Throws engine_error.
std::vector<interface_address> network_addresses();

/// Returns the addresses by which other machines may reach this one, IPv4 first. `chosen` is the value of
/// HFCOMM_INTERFACE: names of interfaces or addresses, between commas, which come in that order; without it these are
/// all that are up and neither loopback nor link-local. Empty where there are none.
std::vector<interface_address> reachable_addresses(const std::vector<interface_address>& all, std::string_view chosen);

/// Returns the address over which a link of this machine goes: the first of those by which other machines may reach it,
/// as HFCOMM_INTERFACE chooses. Without an address where there is none. Throws engine_error.
interface_address chosen_interface();

}  // namespace hfcomm::rendezvous
