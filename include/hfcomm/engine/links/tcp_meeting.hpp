// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/engine/links/link.hpp>
#include <hfcomm/machine/network_interfaces.hpp>
#include <hfcomm/machine/random_id.hpp>
#include <hfcomm/machine/shared_segment.hpp>
#include <hfcomm/machine/tcp_socket.hpp>

namespace hfcomm::engines {

/// Makes the TCP connections between machines. The lower of two connects to all addresses of the higher one at once, of
/// which some may lead nowhere, or elsewhere. On each connection both show the secret that the other one has published.
/// The lower one takes the first on which that succeeds, and says so on it.
class tcp_meeting {
 public:
  /// A machine with its connection, or without one where there is no hope of it.
  struct outcome {
    int machine = -1;  ///< Negative: nothing is known yet.
    rendezvous::unique_fd socket{};
  };

  /// Listens. `interfaces` are those by which others reach this machine, as HFCOMM_INTERFACE names them; null: all.
  /// Throws engine_error.
  explicit tcp_meeting(const char* interfaces)
      : interfaces_(interfaces != nullptr ? interfaces : ""), listener_(rendezvous::tcp_socket(AF_INET6)) {
    rendezvous::tcp_address any;
    any.storage.ss_family = AF_INET6;
    any.length = sizeof(sockaddr_in6);
    if (!listener_) {
      listener_ = rendezvous::tcp_socket(AF_INET);
      any.storage.ss_family = AF_INET;
      any.length = sizeof(sockaddr_in);
    } else {
      const int off = 0;  // IPv4 too
      ::setsockopt(listener_.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    }
    if (::bind(listener_.get(), any.get(), any.length) != 0 || ::listen(listener_.get(), SOMAXCONN) != 0) {
      throw_link_error("tcp", detail::concat({"no socket can listen (", std::strerror(errno), ")"}));
    }
    secret_ = {rendezvous::random_word(), rendezvous::random_word()};
  }

  /// Returns how others find this machine: its secret, and as text, between commas, its port and its addresses.
  [[nodiscard]] std::vector<std::byte> address() const {
    const auto all = rendezvous::network_addresses();
    auto found = rendezvous::reachable_addresses(all, interfaces_);
    if (found.empty() && interfaces_.empty()) {  // all machines are this one
      found = rendezvous::reachable_addresses(all, "lo");
    }
    if (found.empty()) {
      throw_link_error("tcp", interfaces_.empty() ? std::string("no network interface is up")
                                                  : detail::concat({"no network interface ", interfaces_, " is up"}));
    }
    std::string text = detail::concat({rendezvous::address_of(listener_.get(), &::getsockname).port()});
    for (const auto& one : found) {
      detail::append(text, {',', one.address});
    }
    std::vector<std::byte> bytes(sizeof(secret_) + text.size());
    std::memcpy(bytes.data(), &secret_, sizeof(secret_));
    std::memcpy(bytes.data() + sizeof(secret_), text.data(), text.size());
    return bytes;
  }

  /// Makes this the meeting of machine `self`. `addresses` has each machine's. `events` is the epoll that tells of
  /// news, with keys from `first_key` on.
  void open(int self, std::vector<std::vector<std::byte>> addresses, int events) {
    self_ = self;
    addresses_ = std::move(addresses);
    events_ = events;
    watch(EPOLL_CTL_ADD, listener_.get(), first_key, EPOLLIN);
  }

  static constexpr std::uint64_t first_key = std::uint64_t{1} << 32;

  /// Begins to connect to a higher machine. Returns false where nothing can be tried.
  [[nodiscard]] bool connect(int machine) noexcept {
    const auto& address = addresses_[static_cast<std::size_t>(machine)];
    std::string text(address.size() - std::min(sizeof(secret_), address.size()), ' ');
    std::memcpy(text.data(), address.data() + (address.size() - text.size()), text.size());
    std::string_view rest = text;
    const auto next = [&rest] {
      const auto word = rest.substr(0, rest.find(','));
      rest.remove_prefix(std::min(word.size() + 1, rest.size()));
      return std::string(word);
    };
    const auto port = static_cast<std::uint16_t>(std::strtoul(next().c_str(), nullptr, 10));
    bool has_begun = false;
    while (!rest.empty()) {
      for (const auto& target : rendezvous::resolve(next(), port).addresses) {
        auto socket = rendezvous::tcp_socket(target.family());
        const int most_attempts = 3;  // 15 seconds
        ::setsockopt(socket.get(), IPPROTO_TCP, TCP_SYNCNT, &most_attempts, sizeof(most_attempts));
        if (socket && (::connect(socket.get(), target.get(), target.length) == 0 || errno == EINPROGRESS)) {
          add({.socket = std::move(socket), .machine = machine, .connects = true});
          has_begun = true;
        }
      }
    }
    return has_begun;
  }

  /// Takes news of a key.
  [[nodiscard]] outcome take(std::uint64_t key) noexcept {
    if (key == first_key) {
      while (rendezvous::unique_fd socket{::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)}) {
        const auto is_unknown = [](const contact& one) { return one.machine < 0; };
        if (std::count_if(contacts_.begin(), contacts_.end(), is_unknown) == most_unknown) {
          contacts_.erase(std::find_if(contacts_.begin(), contacts_.end(), is_unknown));
        }
        add({.socket = std::move(socket)});
      }
      return {};
    }
    const auto found = std::find_if(contacts_.begin(), contacts_.end(), [&](auto& one) { return one.key == key; });
    if (found == contacts_.end()) {
      return {};
    }
    const progress how = go_on(*found);
    if (how == progress::waits) {
      return {};
    }
    const bool connects = found->connects;
    outcome result{.machine = found->machine};
    if (how == progress::succeeds) {
      result.socket = std::move(found->socket);
      rendezvous::send_without_delay(result.socket.get());
      forget(result.machine);
      return result;
    }
    contacts_.erase(found);
    const bool has_hope = !connects || std::any_of(contacts_.begin(), contacts_.end(),
                                                   [&](auto& one) { return one.machine == result.machine; });
    return has_hope ? outcome() : std::move(result);
  }

  /// Ends the contacts with a machine.
  void forget(int machine) noexcept {
    for (auto one = contacts_.begin(); one != contacts_.end();) {
      one = one->machine == machine ? contacts_.erase(one) : std::next(one);
    }
  }

 private:
  using secret = std::array<std::uint64_t, 2>;

  /// What both sides send first, and the one that connects a second time on the connection that it takes.
  struct greeting {
    secret of_receiver{};
    std::uint64_t sender = 0;
  };
  /// A connection on which the other side has not proved yet who it is.
  struct contact {
    rendezvous::unique_fd socket;
    int machine = -1;       // -1: not known
    bool connects = false;  // this machine does
    bool has_greeted = false;
    std::uint64_t key = 0;
    std::array<std::byte, sizeof(greeting)> in{};
    std::size_t got = 0;
  };
  enum class progress { waits, fails, succeeds };

  static constexpr std::ptrdiff_t most_unknown = 256;  // that wait: who is no machine of the job may connect, too

  void watch(int how, int fd, std::uint64_t key, std::uint32_t what) const noexcept {
    epoll_event event{};
    event.events = what;
    event.data.u64 = key;
    ::epoll_ctl(events_, how, fd, &event);
  }

  void add(contact made) noexcept {
    made.key = ++last_key_;
    contacts_.push_back(std::move(made));
    watch(EPOLL_CTL_ADD, contacts_.back().socket.get(), last_key_, EPOLLIN | EPOLLOUT | EPOLLET);
  }
  [[nodiscard]] secret secret_of(int machine) const noexcept {
    secret theirs{};
    const auto& address = addresses_[static_cast<std::size_t>(machine)];
    std::memcpy(&theirs, address.data(), std::min(sizeof(theirs), address.size()));
    return theirs;
  }
  [[nodiscard]] bool greet(const contact& one) const noexcept {
    const greeting mine{secret_of(one.machine), static_cast<std::uint64_t>(self_)};
    return ::send(one.socket.get(), &mine, sizeof(mine), MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof(mine));
  }

  [[nodiscard]] progress go_on(contact& one) const noexcept {
    if (one.connects && !one.has_greeted) {
      if (rendezvous::error_of(one.socket.get()) != 0) {
        return progress::fails;
      }
      one.has_greeted = greet(one);
      if (!one.has_greeted) {
        return errno == EAGAIN || errno == ENOTCONN ? progress::waits : progress::fails;
      }
    }
    while (true) {
      const ssize_t got = ::recv(one.socket.get(), &one.in[one.got], one.in.size() - one.got, 0);
      if (got <= 0) {
        return got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) ? progress::waits
                                                                                      : progress::fails;
      }
      one.got += static_cast<std::size_t>(got);
      if (one.got < one.in.size()) {
        continue;
      }
      one.got = 0;
      greeting theirs;
      std::memcpy(&theirs, one.in.data(), sizeof(theirs));
      const bool fits = one.machine >= 0 ? theirs.sender == static_cast<std::uint64_t>(one.machine)
                                         : theirs.sender < static_cast<std::uint64_t>(self_);
      if (theirs.of_receiver != secret_ || !fits) {
        return progress::fails;
      }
      if (one.machine >= 0) {
        return !one.connects || greet(one) ? progress::succeeds : progress::fails;
      }
      one.machine = static_cast<int>(theirs.sender);
      if (!greet(one)) {
        return progress::fails;
      }
    }
  }

  std::string interfaces_;
  rendezvous::unique_fd listener_;
  secret secret_{};
  int self_ = -1;
  int events_ = -1;
  std::vector<std::vector<std::byte>> addresses_;
  std::list<contact> contacts_;
  std::uint64_t last_key_ = first_key;
};

}  // namespace hfcomm::engines
