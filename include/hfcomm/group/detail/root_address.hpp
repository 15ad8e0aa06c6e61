// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <hfcomm/group/environment.hpp>

namespace hfcomm::detail {

/// A host, and the port where one is named.
struct host_and_port {
  std::string host;
  std::optional<std::uint16_t> port;
};

/// Returns whether a name or numeric address leads each machine to itself.
inline bool is_loopback_host(std::string_view host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

/// Returns the parts of "host", "host:port", "[v6]" or "[v6]:port"; nullopt for any other text.
[[gnu::cold]] std::optional<host_and_port> parse_host_and_port(std::string_view text);

/// Returns the first host of a list such as "mlt[0-1,3],other7" or "rack[1-2]n[01-04]-ib", as Slurm writes it; nullopt
/// where the text is no such list.
std::optional<std::string> first_host(std::string_view list);

/// Returns 8 different ports from 20000 to 60999, in an order, that depend on the job's key and epoch, and are not
/// `taken`.
[[gnu::cold]] std::vector<std::uint16_t> candidate_ports(std::string_view key, int epoch, std::uint16_t taken = 0);

/// Sets the address of the machine of rank 0. Without a port, the job's key and epoch give 8.
void set_root_address(launch_environment& job, host_and_port address, std::uint16_t taken = 0);

}  // namespace hfcomm::detail
