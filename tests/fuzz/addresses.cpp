// SPDX-License-Identifier: MIT
// Texts that say where the root is: Slurm's lists of hosts, hosts with ports, what a root has published, and lines of a
// PMI-1 server.
#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

#include <hfcomm/group/detail/root_address.hpp>
#include <hfcomm/rendezvous/address_exchange.hpp>
#include <hfcomm/rendezvous/pmi_client.hpp>

#include "targets.hpp"

namespace fuzz {

void read_addresses(bytes input) {
  using namespace hfcomm;
  const std::size_t kind = choose(input, 4);
  const std::string_view text = as_text(input);
  if (kind == 0) {
    const auto first = detail::first_host(text);
    require(!first || !first->empty(), "a host has a name");
  } else if (kind == 1) {
    const auto found = detail::parse_host_and_port(text);
    require(!found || (!found->host.empty() && found->port != 0), "a host has a name, and a port a number");
  } else if (kind == 2) {
    if (const auto found = rendezvous::parse_root_address(text)) {
      const std::string again = rendezvous::to_text(*found);
      require(std::count(again.begin(), again.end(), ' ') == 0, "a text of an address has no space");
      const auto second = rendezvous::parse_root_address(again);
      require(second && second->hosts == found->hosts && second->ports == found->ports && second->nonce == found->nonce,
              "an address is the same after being written and read");
    }
  } else {
    const auto value = rendezvous::pmi_client::field(text, "value");
    require(!value || text.find("value=") != std::string_view::npos, "a field was in the line");
  }
}

}  // namespace fuzz
