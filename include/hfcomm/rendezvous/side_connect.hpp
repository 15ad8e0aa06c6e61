// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <poll.h>
#include <sys/socket.h>

#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/core/error.hpp>
#include <hfcomm/core/function_ref.hpp>
#include <hfcomm/machine/tcp_socket.hpp>
#include <hfcomm/machine/unix_socket.hpp>
#include <hfcomm/rendezvous/side_claims.hpp>
#include <hfcomm/rendezvous/side_connection.hpp>
#include <hfcomm/rendezvous/side_handshake.hpp>

namespace hfcomm::rendezvous {

/// The attempts of `connect_side`.
class side_connector {
 public:
  side_connector(std::string host, std::vector<std::uint16_t> ports, const admission& own, deadline give_up,
                 function_ref<void()> while_waiting)
      : host_(std::move(host)),
        ports_(std::move(ports)),
        own_(std::make_shared<const admission>(own)),
        give_up_(give_up),
        while_waiting_(while_waiting) {}

  side_connection run() {
    for (auto pause = std::chrono::milliseconds(1);; pause = std::min(2 * pause, most_pause)) {
      if (auto connection = try_all_addresses()) {
        return std::move(*connection);
      }
      if (unproven_since_ && clock::now() - *unproven_since_ >= patience) {
        detail::throw_error<usage_error>({failure()});
      }
      if (give_up_.passed()) {
        detail::throw_error<timeout_error>({"timed out: ", failure()}, std::vector<int>{0});
      }
      wait(-1, 0, limited(pause));
    }
  }

 private:
  static constexpr std::chrono::milliseconds slice{20};
  static constexpr std::chrono::milliseconds most_pause{100};
  static constexpr std::chrono::seconds connect_limit{2};  // a lost packet is repeated after 1 s
  static constexpr std::chrono::seconds answer_limit{20};
  static constexpr std::chrono::seconds resolved_for{1};  // then the name may have another address
  static constexpr std::chrono::seconds patience{3};      // an earlier job's listener may be about to end

  [[nodiscard]] std::string failure() const {
    const std::string host = host_.find(':') != std::string::npos ? detail::concat({'[', host_, ']'}) : host_;
    std::string ports;
    for (const std::uint16_t port : ports_) {
      detail::append(ports, {ports.empty() ? ":" : "/", port});
    }
    return detail::concat({"cannot connect to rank 0 at ", host, ports, ": ", problems_});
  }

  [[nodiscard]] deadline limited(std::chrono::nanoseconds most) const {
    return deadline{std::min(give_up_.at, clock::now() + most)};
  }

  /// Waits for an event; returns whether it came before the limit.
  bool wait(int fd, short events, deadline limit) {
    while (true) {
      while_waiting_();
      const auto left = limit.milliseconds_left();
      const auto most = static_cast<std::int32_t>(slice.count());
      pollfd event{fd, events, 0};
      if (::poll(&event, 1, left < 0 ? most : std::min(left, most)) > 0) {
        return true;
      }
      if (limit.passed()) {
        return false;
      }
    }
  }

  /// Looks up the host and tries its addresses. Returns a proven connection, or nullopt after it has noted the reasons.
  std::optional<side_connection> try_all_addresses() {
    has_unproven_ = false;
    if (!resolved_at_ || clock::now() - *resolved_at_ >= resolved_for) {
      resolved_ = resolve(host_, ports_.front());
      resolved_at_ = clock::now();
    }
    round_ = resolved_.problem;
    for (const tcp_address& address : resolved_.addresses) {
      for (const std::uint16_t port : ports_) {
        if (auto connection = try_address(address.with_port(port))) {
          return connection;
        }
      }
    }
    // A round that the deadline cuts says less than the one before it.
    if (problems_.empty() || !give_up_.passed()) {
      problems_ = round_;
    }
    if (!has_unproven_) {
      unproven_since_.reset();
    } else if (!unproven_since_) {
      unproven_since_ = clock::now();
    }
    return std::nullopt;
  }

  std::optional<side_connection> try_address(const tcp_address& address) {
    unique_fd fd = tcp_socket(address.family());
    if (const int problem = connect(fd.get(), address); problem != 0) {
      note(address, std::strerror(problem));
      return std::nullopt;
    }
    side_connection connection(std::move(fd), side_role::connector, own_);
    const bool has_answered = finish_handshake(connection);
    if (!connection.is_closed()) {
      return connection;
    }
    note(address, connection.close_reason());
    if (ports_.size() > 1) {
      return std::nullopt;  // another job may have this port, and this job another of them
    }
    if (connection.verdict() == side_verdict::other_job) {
      problems_ = round_;
      detail::throw_error<usage_error>({failure()});
    }
    // It will not let this process in later; but another listener may take its place.
    has_unproven_ = has_unproven_ || (has_answered && connection.verdict() != side_verdict::other_start);
    return std::nullopt;
  }

  void note(const tcp_address& address, const std::string& problem) {
    const char* const remark =
        " (a loopback address, which leads to this machine: if rank 0 is on another one, give "
        "its address in the network)";
    detail::append(round_,
                   {round_.empty() ? "" : "; ", address.text(), ": ", problem, address.is_loopback() ? remark : ""});
  }

  /// Returns 0 or the system's error.
  int connect(int fd, const tcp_address& address) {
    if (fd < 0) {
      return errno;
    }
    int problem = ::connect(fd, address.get(), address.length) == 0 ? 0 : errno;
    if (problem == EINPROGRESS) {
      problem = wait(fd, POLLOUT, limited(connect_limit)) ? error_of(fd) : ETIMEDOUT;
    }
    // The system may have given the port, at which nobody listens, to this very socket: it connects to itself.
    if (problem == 0 && address_of(fd, ::getsockname) == address_of(fd, ::getpeername)) {
      return ECONNREFUSED;
    }
    return problem;
  }

  /// Waits until the connection is proven or closed. Returns whether the other end has answered.
  bool finish_handshake(side_connection& connection) {
    const auto began = clock::now();
    while (!connection.is_closed() && connection.verdict() == side_verdict::pending) {
      // Once the root has taken this end's proof it counts on the connection, even where its answer is lost at first.
      const auto most = connection.has_hello() ? answer_limit : side_connection::handshake_limit;
      if (!wait(connection.fd(), POLLIN, {std::min(give_up_.at, began + most)})) {
        connection.close("it is there, but did not answer in time");
        return false;
      }
      connection.continue_handshake();
    }
    return true;
  }

  std::string host_;
  std::vector<std::uint16_t> ports_;
  std::shared_ptr<const admission> own_;
  deadline give_up_;
  function_ref<void()> while_waiting_;
  resolved_host resolved_;
  std::optional<clock::time_point> resolved_at_;
  std::string round_;          // what has gone wrong in this round
  std::string problems_;       // and in the last whole one
  bool has_unproven_ = false;  // somebody has answered in this round who is not proven
  std::optional<clock::time_point> unproven_since_;
};

/// Connects to the listener of this job, and waits until both ends are proven. Tries all addresses of the host and all
/// ports, again and again until the deadline, because the listener may start later. Calls `while_waiting` at least each
/// 20 ms, but for the look-up of the name; what it throws ends the attempt.
///
/// Throws timeout_error (missing: rank 0) at the deadline, with all addresses that were tried and why each failed.
/// With one port, throws usage_error where the listener belongs to another job, or where somebody has been there for
/// 3 s who is not proven.
inline side_connection connect_side(
    const std::string& host, std::vector<std::uint16_t> ports, const admission& own, deadline give_up,
    function_ref<void()> while_waiting = [] {}) {
  return side_connector(host, std::move(ports), own, give_up, while_waiting).run();
}
}  // namespace hfcomm::rendezvous
