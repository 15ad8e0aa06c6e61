// SPDX-License-Identifier: MIT
#pragma once

#include <cstdlib>
#include <string>

#include <hfcomm/machine/network_interfaces.hpp>

namespace hfcomm::engines {

/// Returns the address over which a link of this machine goes: the first of those by which other machines may reach it
/// (see reachable_addresses), as HFCOMM_INTERFACE chooses. Without an address where there is none. Throws engine_error.
inline rendezvous::interface_address chosen_interface() {
  const char* const variable = std::getenv("HFCOMM_INTERFACE");
  const std::string wanted = variable != nullptr ? variable : "";
  const auto found = rendezvous::reachable_addresses(rendezvous::network_addresses(), wanted);
  return found.empty() ? rendezvous::interface_address{.interface = wanted, .address = {}} : found.front();
}

}  // namespace hfcomm::engines
