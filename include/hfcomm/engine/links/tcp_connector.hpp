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

#include <fcntl.h>
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
class tcp_connector {
 public:
  /// A machine with its connection, or without one where none can be made any more.
  struct result {
    int machine = -1;  ///< Negative: nothing is known yet.
    rendezvous::unique_fd socket{};
  };

  /// Listens at the one address by which others reach this machine, or at all where there are several. `interfaces`
  /// says by which, as HFCOMM_INTERFACE does; null: all but the loopback one. Throws engine_error.
  explicit tcp_connector(const char* interfaces) {
    const std::string chosen = interfaces != nullptr ? interfaces : "";
    const auto all = rendezvous::network_addresses();
    auto found = rendezvous::reachable_addresses(all, chosen);
    if (found.empty() && chosen.empty()) {  // all machines are this one
      found = rendezvous::reachable_addresses(all, "lo");
    }
    if (found.empty()) {
      throw_link_error("tcp", chosen.empty() ? std::string("no network interface is up")
                                             : detail::concat({"no network interface ", chosen, " is up"}));
    }
    listen(found.size() == 1 ? found.front().address : std::string());
    secret_ = {rendezvous::random_word(), rendezvous::random_word()};
    std::string text = detail::concat({rendezvous::address_of(listener_.get(), &::getsockname).port()});
    for (const auto& one : found) {
      detail::append(text, {',', one.address});
    }
    address_.resize(sizeof(secret_) + text.size());
    std::memcpy(address_.data(), &secret_, sizeof(secret_));
    std::memcpy(address_.data() + sizeof(secret_), text.data(), text.size());
  }

  /// Returns how others find this machine: its secret, and as text, between commas, its port and its addresses.
  [[nodiscard]] const std::vector<std::byte>& address() const noexcept { return address_; }

  /// Makes this the connector of machine `self`. `addresses` has each machine's. `events` is the epoll that tells of
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
  [[nodiscard]] result take(std::uint64_t key) noexcept {
    if (key == first_key) {
      while (rendezvous::unique_fd socket = accept()) {
        const auto is_unknown = [](const contact& one) { return one.machine < 0; };
        if (std::count_if(contacts_.begin(), contacts_.end(), is_unknown) >= most_unknown()) {
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
    result made{.machine = found->machine};
    if (how == progress::succeeds) {
      made.socket = std::move(found->socket);
      rendezvous::send_without_delay(made.socket.get());
      forget(made.machine);
      return made;
    }
    contacts_.erase(found);
    const bool may_succeed = !connects || std::any_of(contacts_.begin(), contacts_.end(),
                                                      [&](auto& one) { return one.machine == made.machine; });
    return may_succeed ? result() : std::move(made);
  }

  /// Ends the contacts with a machine.
  void forget(int machine) noexcept {
    for (auto one = contacts_.begin(); one != contacts_.end();) {
      one = one->machine == machine ? contacts_.erase(one) : std::next(one);
    }
  }

 private:
  using secret = std::array<std::uint64_t, 2>;

  /// The first message of both sides. The one that connects repeats it on the connection that it takes.
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

  /// Returns how many connections may wait to prove who they are: a few of each machine, and some of strangers.
  [[nodiscard]] std::ptrdiff_t most_unknown() const noexcept {
    return 256 + 8 * static_cast<std::ptrdiff_t>(addresses_.size());
  }

  /// Listens at an address, or at all.
  void listen(const std::string& at) {
    for (const auto& one : at.empty() ? rendezvous::any_addresses() : rendezvous::resolve(at, 0).addresses) {
      if (!listener_) {
        listener_ = rendezvous::listen_at(one);
      }
    }
    if (!listener_) {
      throw_link_error("tcp", detail::concat({"no socket can listen (", std::strerror(errno), ")"}));
    }
  }

  /// Returns the next connection that has come, if any. Where the process has no descriptor left, those that come are
  /// closed: the other machine fails at once then, instead of waiting.
  [[nodiscard]] rendezvous::unique_fd accept() noexcept {
    const auto next = [&] {
      return rendezvous::unique_fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    };
    auto socket = next();
    if (!socket && (errno == EMFILE || errno == ENFILE)) {
      spare_.close();
      next().close();
      spare_ = rendezvous::unique_fd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    }
    return socket;
  }

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
        return got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK) ? progress::waits : progress::fails;
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

  rendezvous::unique_fd listener_;
  rendezvous::unique_fd spare_{::open("/dev/null", O_RDONLY | O_CLOEXEC)};
  secret secret_{};
  std::vector<std::byte> address_;
  int self_ = -1;
  int events_ = -1;
  std::vector<std::vector<std::byte>> addresses_;
  std::list<contact> contacts_;
  std::uint64_t last_key_ = first_key;
};

}  // namespace hfcomm::engines
