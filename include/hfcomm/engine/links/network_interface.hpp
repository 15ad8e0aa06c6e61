// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

namespace hfcomm::engines {

/// An address of this machine.
struct network_interface {
  std::string name;     ///< For example "eth0".
  std::string address;  ///< Numeric.
  bool is_loopback = false;
};

/// Returns the addresses of the interfaces that are up, IPv4 before IPv6, without those that are valid on one wire
/// only.
inline std::vector<network_interface> network_interfaces() {
  std::vector<network_interface> found;
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) {
    return found;
  }
  for (const int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* one = all; one != nullptr; one = one->ifa_next) {
      if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != family || (one->ifa_flags & IFF_UP) == 0) {
        continue;
      }
      if (family == AF_INET6 &&
          IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(one->ifa_addr)->sin6_addr)) {
        continue;
      }
      std::array<char, NI_MAXHOST> text{};
      const socklen_t length = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
      if (::getnameinfo(one->ifa_addr, length, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) == 0) {
        found.push_back({one->ifa_name, text.data(), (one->ifa_flags & IFF_LOOPBACK) != 0});
      }
    }
  }
  ::freeifaddrs(all);
  return found;
}

/// Returns the interface that the variable HFCOMM_INTERFACE names, by its name or one of its numeric addresses; without
/// the variable, the first one that is no loopback. Without an address where there is no such interface.
inline network_interface chosen_interface() {
  const char* const variable = std::getenv("HFCOMM_INTERFACE");
  const std::string_view wanted = variable != nullptr ? variable : "";
  for (const auto& one : network_interfaces()) {
    if (wanted.empty() ? !one.is_loopback : one.name == wanted || one.address == wanted) {
      return one;
    }
  }
  return {std::string(wanted), "", false};
}

}  // namespace hfcomm::engines
