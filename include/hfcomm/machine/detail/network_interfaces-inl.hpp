// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <array>
#include <cstdlib>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <hfcomm/core/config.hpp>
#include <hfcomm/machine/network_interfaces.hpp>
#include <hfcomm/machine/shared_segment.hpp>

namespace hfcomm::rendezvous {

HFCOMM_INLINE std::vector<interface_address> network_addresses() {
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0) {
    throw_system("listing the network interfaces");
  }
  std::vector<interface_address> result;
  for (const ifaddrs* one = first; one != nullptr; one = one->ifa_next) {
    const int family = one->ifa_addr != nullptr ? one->ifa_addr->sa_family : AF_UNSPEC;
    if (family != AF_INET && family != AF_INET6) {
      continue;
    }
    const bool is_ipv6 = family == AF_INET6;
    std::array<char, NI_MAXHOST> text{};
    const ::socklen_t length = is_ipv6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
    if (::getnameinfo(one->ifa_addr, length, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) != 0) {
      continue;
    }
    const std::string_view address = text.data();
    result.push_back(
        {.interface = one->ifa_name,
         .address = text.data(),
         .is_up = (one->ifa_flags & IFF_UP) != 0 && (one->ifa_flags & IFF_RUNNING) != 0,
         .is_ipv6 = is_ipv6,
         .is_loopback = (one->ifa_flags & IFF_LOOPBACK) != 0,
         .is_link_local = address.starts_with("169.254.") || (is_ipv6 && address.find('%') != std::string_view::npos)});
  }
  ::freeifaddrs(first);
  return result;
}

HFCOMM_INLINE std::vector<interface_address> reachable_addresses(const std::vector<interface_address>& all,
                                                                 std::string_view chosen) {
  std::vector<interface_address> result;
  const auto add = [&](auto matches) {
    for (const bool ipv6 : {false, true}) {
      std::copy_if(all.begin(), all.end(), std::back_inserter(result),
                   [&](const interface_address& one) { return one.is_up && one.is_ipv6 == ipv6 && matches(one); });
    }
  };
  if (chosen.empty()) {
    add([](const interface_address& one) { return !one.is_loopback && !one.is_link_local; });
    return result;
  }
  while (!chosen.empty()) {
    const auto name = chosen.substr(0, chosen.find(','));
    chosen.remove_prefix(name.size() < chosen.size() ? name.size() + 1 : name.size());
    add([&](const interface_address& one) {
      return one.address == name || (one.interface == name && !one.is_link_local);
    });
  }
  return result;
}

HFCOMM_INLINE interface_address chosen_interface() {
  const char* const variable = std::getenv("HFCOMM_INTERFACE");
  const std::string wanted = variable != nullptr ? variable : "";
  const auto found = reachable_addresses(network_addresses(), wanted);
  return found.empty() ? interface_address{.interface = wanted, .address = {}} : found.front();
}

}  // namespace hfcomm::rendezvous
