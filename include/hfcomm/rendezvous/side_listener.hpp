// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <iterator>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <netinet/in.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/core/error.hpp>
#include <hfcomm/core/plain_list.hpp>
#include <hfcomm/machine/shared_segment.hpp>
#include <hfcomm/machine/tcp_socket.hpp>
#include <hfcomm/machine/unix_socket.hpp>
#include <hfcomm/rendezvous/side_claims.hpp>
#include <hfcomm/rendezvous/side_connection.hpp>
#include <hfcomm/rendezvous/side_handshake.hpp>

namespace hfcomm::rendezvous {

/// Limits of the time and the descriptors that strangers may take.
struct side_limits {
  std::chrono::milliseconds handshake = side_connection::handshake_limit;
  /// Connections that are not proven; a quarter of the process's descriptors where that is less. Another one ends the
  /// oldest.
  std::size_t unproven = 2048;
};

/// Listens for the other machines of a job, and gives out connections whose other end has proven itself. Nothing here
/// waits, so whoever connects and is silent, or sends what no process of the job sends, delays nobody. One thread at a
/// time may use it.
class side_listener {
 public:
  /// Listens at the first of `ports` that is free, on all addresses of this machine, of IPv4 and IPv6; 0 is a port that
  /// the system chooses. Throws engine_error where none is free, with the reason for each.
  side_listener(const std::vector<std::uint16_t>& ports, admission own, side_limits limits = {})
      : own_(std::make_shared<const admission>(std::move(own))),
        limits_(limits),
        events_(::epoll_create1(EPOLL_CLOEXEC)) {
    if (!events_) {
      throw_system("creating an epoll descriptor");
    }
    rlimit descriptors{};
    if (::getrlimit(RLIMIT_NOFILE, &descriptors) == 0) {
      limits_.unproven = std::clamp<std::size_t>(descriptors.rlim_cur / 4, 1, limits_.unproven);
    }
    listen_at_one_of(ports);
    watch(fd_.get(), nullptr);
  }

  [[nodiscard]] std::uint16_t port() const { return address_.port(); }
  /// Returns "[::]:29600".
  [[nodiscard]] std::string address() const { return address_.text(); }

  /// Appends what poll should wait for before `progress`: one descriptor for everything.
  void add_to(detail::plain_list<pollfd>& events) const { events.push_back({events_.get(), POLLIN, 0}); }

  /// Accepts connections and continues their handshakes. To be called when poll says so, and each second, because
  /// handshakes have a time limit. Throws engine_error where this process has no descriptor left.
  void progress() {
    std::array<epoll_event, 256> happened;
    const int count = ::epoll_wait(events_.get(), happened.data(), static_cast<int>(happened.size()), 0);
    bool has_arrivals = false;
    for (int index = 0; index < count; ++index) {
      auto* const one = static_cast<candidate*>(happened[static_cast<std::size_t>(index)].data.ptr);
      if (one != nullptr) {
        continue_handshake(*one);
      } else {
        has_arrivals = true;
      }
    }
    // At the end, because it may end candidates, which could be among those above.
    if (has_arrivals) {
      accept_all();
    }
    while (!candidates_.empty() && clock::now() - candidates_.front().since >= limits_.handshake) {
      drop_oldest("the handshake took too long");
    }
  }

  /// Returns a proven connection; nullopt where there is none.
  [[nodiscard]] std::optional<side_connection> take() {
    if (proven_.empty()) {
      return std::nullopt;
    }
    side_connection connection = std::move(proven_.front());
    proven_.pop_front();
    return connection;
  }

  /// Returns the number of connections whose other end is not proven yet.
  [[nodiscard]] std::size_t unproven() const noexcept { return candidates_.size(); }
  /// Returns how many connections were refused, and why the last one was, for error texts: "2 connections were refused,
  /// the last one from 10.0.0.7:40112: ..."; empty where none was.
  [[nodiscard]] std::string describe_refused() const {
    if (refused_ == 0) {
      return {};
    }
    return detail::concat({refused_ == 1 ? "1 connection was" : detail::concat({refused_, " connections were"}),
                           " refused, the last one from ", last_refused_});
  }

 private:
  /// A connection whose other end is not proven, and its place in the list.
  struct candidate {
    side_connection connection;
    clock::time_point since;
    std::list<candidate>::iterator self;
  };

  void listen_at_one_of(const std::vector<std::uint16_t>& ports) {
    std::string problems;
    for (const tcp_address& address : any_addresses()) {
      for (const std::uint16_t port : ports) {
        const tcp_address one = address.with_port(port);
        fd_ = listen_at(one);
        if (fd_) {
          address_ = address_of(fd_.get(), ::getsockname);
          return;
        }
        const int problem = errno;
        detail::append(problems, {problems.empty() ? "" : "; ", one.text(), ": ", std::strerror(problem)});
      }
    }
    detail::throw_error<engine_error>(
        {"cannot listen for the other machines of the job: ", problems.empty() ? "there is no port to try" : problems});
  }

  void watch(int fd, candidate* one) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.ptr = one;
    if (::epoll_ctl(events_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
      throw_system("waiting for connections");
    }
  }

  /// Takes those who have connected, but a limited number, so that handshakes go on between.
  void accept_all() {
    for (int accepted = 0; accepted < 64 && has_arrival(); ++accepted) {
      unique_fd fd(::accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      const bool has_no_room = !fd && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM);
      if (has_no_room && candidates_.empty()) {
        throw_system("accepting a connection of another machine");
      }
      if (has_no_room || (fd && candidates_.size() >= limits_.unproven)) {
        drop_oldest("others came before it was proven");
      }
      if (fd) {
        add(std::move(fd));
      }
    }
  }

  /// Without a free descriptor, accept fails even where nobody has connected.
  [[nodiscard]] bool has_arrival() const {
    pollfd event{fd_.get(), POLLIN, 0};
    return ::poll(&event, 1, 0) == 1;
  }

  void add(unique_fd fd) {
    candidates_.push_back({side_connection(std::move(fd), side_role::listener, own_), clock::now(), {}});
    candidates_.back().self = std::prev(candidates_.end());
    watch(candidates_.back().connection.fd(), &candidates_.back());
  }

  void continue_handshake(candidate& one) {
    side_connection& connection = one.connection;
    connection.continue_handshake();
    if (connection.is_closed()) {
      refuse(one, connection.close_reason());
    } else if (connection.verdict() == side_verdict::proven) {
      ::epoll_ctl(events_.get(), EPOLL_CTL_DEL, connection.fd(), nullptr);
      proven_.push_back(std::move(connection));
      candidates_.erase(one.self);
    }
  }

  void drop_oldest(const std::string& reason) { refuse(candidates_.front(), reason); }

  void refuse(candidate& one, const std::string& reason) {
    ++refused_;
    last_refused_ = detail::concat({one.connection.peer_address(), ": ", reason});
    candidates_.erase(one.self);
  }

  std::shared_ptr<const admission> own_;
  side_limits limits_;
  unique_fd events_;  // epoll: the listening socket (null) and the candidates
  unique_fd fd_;
  tcp_address address_;
  std::list<candidate> candidates_;  // oldest first
  std::deque<side_connection> proven_;
  std::size_t refused_ = 0;
  std::string last_refused_;
};

}  // namespace hfcomm::rendezvous
