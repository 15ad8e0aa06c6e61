// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/machine/shared_segment.hpp>

namespace hfcomm::rendezvous {

struct tcp_address {
  sockaddr_storage storage{};
  socklen_t length = sizeof(sockaddr_storage);

  [[nodiscard]] const sockaddr* get() const noexcept { return reinterpret_cast<const sockaddr*>(&storage); }
  [[nodiscard]] sockaddr* get() noexcept { return reinterpret_cast<sockaddr*>(&storage); }
  [[nodiscard]] int family() const noexcept { return storage.ss_family; }

  [[nodiscard]] std::uint16_t port() const noexcept {
    return ntohs(family() == AF_INET6 ? as<sockaddr_in6>().sin6_port : as<sockaddr_in>().sin_port);
  }

  [[nodiscard]] tcp_address with_port(std::uint16_t port) const noexcept {
    tcp_address result = *this;
    // Both families have the port at the same place.
    static_assert(offsetof(sockaddr_in, sin_port) == offsetof(sockaddr_in6, sin6_port));
    const std::uint16_t in_network_order = htons(port);
    std::memcpy(reinterpret_cast<std::byte*>(&result.storage) + offsetof(sockaddr_in, sin_port), &in_network_order,
                sizeof(in_network_order));
    return result;
  }

  /// Returns whether the address is one of IPv4, which IPv6 sockets show as ::ffff:1.2.3.4.
  [[nodiscard]] bool is_mapped() const noexcept {
    return family() == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&as<sockaddr_in6>().sin6_addr) != 0;
  }

  /// Returns whether only processes of this machine reach the address.
  [[nodiscard]] bool is_loopback() const noexcept {
    const in6_addr& long_one = as<sockaddr_in6>().sin6_addr;
    if (family() == AF_INET6 && !is_mapped()) {
      return IN6_IS_ADDR_LOOPBACK(&long_one) != 0;
    }
    const auto first = family() == AF_INET6 ? long_one.s6_addr[12] : ntohl(as<sockaddr_in>().sin_addr.s_addr) >> 24;
    return first == 127;
  }

  /// Returns "10.0.0.1:29600" or "[fe80::1%eth0]:29600".
  [[nodiscard]] std::string text() const {
    std::array<char, NI_MAXHOST> host{};
    if (::getnameinfo(get(), length, host.data(), host.size(), nullptr, 0, NI_NUMERICHOST) != 0) {
      return "an unknown address";
    }
    std::string name = host.data();
    if (is_mapped()) {
      name = name.substr(name.rfind(':') + 1);
    } else if (family() == AF_INET6) {
      name = detail::concat({'[', name, ']'});
    }
    return detail::concat({name, ':', port()});
  }

  friend bool operator==(const tcp_address& first, const tcp_address& second) noexcept {
    return first.length == second.length && std::memcmp(&first.storage, &second.storage, first.length) == 0;
  }

 private:
  template <class Address>
  [[nodiscard]] const Address& as() const noexcept {
    return *reinterpret_cast<const Address*>(&storage);
  }
};

/// Returns the address of a socket's own end (getsockname), or of the other one (getpeername).
inline tcp_address address_of(int fd, int (*which)(int, sockaddr*, socklen_t*)) {
  tcp_address result;
  if (which(fd, result.get(), &result.length) != 0) {
    result.storage.ss_family = AF_UNSPEC;
  }
  return result;
}

/// The addresses of a host, and why there are none.
struct resolved_host {
  std::vector<tcp_address> addresses;
  std::string problem;  ///< Empty where there are some.
};

/// Looks up a host name or numeric address. May wait for a name server.
inline resolved_host resolve(const std::string& host, std::uint16_t port) {
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  wanted.ai_flags = AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const int status = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &wanted, &list);
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owned(list, [](addrinfo* one) {
    if (one != nullptr) {
      ::freeaddrinfo(one);
    }
  });
  resolved_host result;
  if (status != 0) {
    result.problem = status == EAI_SYSTEM ? std::strerror(errno) : ::gai_strerror(status);
    return result;
  }
  for (const addrinfo* one = list; one != nullptr; one = one->ai_next) {
    tcp_address address;
    address.length = one->ai_addrlen;
    std::memcpy(&address.storage, one->ai_addr, one->ai_addrlen);
    if (std::find(result.addresses.begin(), result.addresses.end(), address) == result.addresses.end()) {
      result.addresses.push_back(address);
    }
  }
  return result;
}

/// Returns a socket that never blocks; empty, with errno set, where there is none.
inline unique_fd tcp_socket(int family) {
  return unique_fd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

/// Returns the addresses at which a socket takes connections to any address of this machine, to be tried in turn. One
/// of IPv6 takes connections of IPv4, too.
inline std::vector<tcp_address> any_addresses() {
  std::vector<tcp_address> any(2);
  any[0].storage.ss_family = AF_INET6;
  any[0].length = sizeof(sockaddr_in6);
  any[1].storage.ss_family = AF_INET;
  any[1].length = sizeof(sockaddr_in);
  return any;
}

/// Returns a socket that listens at an address and never blocks; empty, with errno set, where there is none.
inline unique_fd listen_at(const tcp_address& address) {
  unique_fd fd = tcp_socket(address.family());
  if (!fd) {
    return fd;
  }
  const int on = 1;
  const int off = 0;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));  // a job that ended just now leaves its port
  if (address.family() == AF_INET6) {
    ::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
  }
  if (::bind(fd.get(), address.get(), address.length) != 0 || ::listen(fd.get(), 4096) != 0) {
    const int problem = errno;
    fd.close();
    errno = problem;
  }
  return fd;
}

/// Returns the error of what the socket has done without waiting, of a connect for instance; 0 where there is none.
inline int error_of(int fd) {
  int problem = 0;
  socklen_t length = sizeof(problem);
  return ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &problem, &length) == 0 ? problem : errno;
}

/// Returns whether a host name or numeric address leads to this machine, as far as the system knows: an address that a
/// gateway translates is not known here. True where the name has no address. May wait for a name server.
inline bool may_be_this_machine(const std::string& host) {
  const auto found = resolve(host, 0);
  return found.addresses.empty() ||
         std::any_of(found.addresses.begin(), found.addresses.end(), [](const tcp_address& address) {
           const unique_fd fd = tcp_socket(address.family());
           return !fd || ::bind(fd.get(), address.get(), address.length) == 0 || errno != EADDRNOTAVAIL;
         });
}

/// Lets short messages leave at once, and repeats a lost one at an even pace for a while. By default the kernel doubles
/// the pause with each loss, so that a few losses in a row look like a machine that is silent.
inline void send_without_delay(int fd) {
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  ::setsockopt(fd, IPPROTO_TCP, TCP_THIN_LINEAR_TIMEOUTS, &on, sizeof(on));
}

}  // namespace hfcomm::rendezvous
