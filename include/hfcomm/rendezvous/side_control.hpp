// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <hfcomm/engine/hierarchical/control_channel.hpp>
#include <hfcomm/machine/shared_segment.hpp>
#include <hfcomm/machine/unix_socket.hpp>
#include <hfcomm/rendezvous/side_connection.hpp>

namespace hfcomm::rendezvous {

/// Sends what is queued, and waits until the peer has read it and closed its end, but not longer than `limit`. Then
/// closes: a connection that is closed with unread bytes may lose what was sent last.
inline void close_when_read(side_connection& connection, std::chrono::milliseconds limit) {
  const auto end = deadline::in(limit);
  bool is_shut = false;
  while (!connection.is_closed() && !end.passed()) {
    connection.flush();
    if (!connection.wants_write() && !std::exchange(is_shut, true)) {
      ::shutdown(connection.fd(), SHUT_WR);
    }
    while (connection.receive()) {
    }
    std::vector<pollfd> events;
    connection.add_to(events);
    static_cast<void>(::poll(events.data(), static_cast<nfds_t>(events.size()), 20));
  }
  connection.close("closed");
}

/// The control messages of a machine's agent, over the connections that the start of the job has made.
class side_control final : public engines::control_channel {
 public:
  /// The kinds of the start's own messages are below this.
  static constexpr std::uint8_t first_kind = 64;

  /// `connections` has that to each machine: the root has all but its own, the others only that to machine 0.
  explicit side_control(std::vector<std::optional<side_connection>> connections)
      : connections_(std::move(connections)),
        wants_write_(connections_.size()),
        events_(::epoll_create1(EPOLL_CLOEXEC)) {
    if (!events_) {
      throw_system("creating an epoll descriptor");
    }
    for (std::size_t machine = 0; machine < connections_.size(); ++machine) {
      if (connections_[machine]) {
        watch(EPOLL_CTL_ADD, machine);
      }
    }
  }

  void send(int machine, engines::control_kind kind, std::span<const std::byte> bytes) override {
    if (auto& connection = connections_[static_cast<std::size_t>(machine)]) {
      connection->send(static_cast<std::uint8_t>(first_kind + static_cast<std::uint8_t>(kind)), bytes);
      update(static_cast<std::size_t>(machine));
    }
  }

  [[nodiscard]] std::optional<engines::control_message> receive() override {
    for (std::size_t turn = 0; turn < connections_.size(); ++turn) {
      const std::size_t machine = next_++ % connections_.size();
      auto& connection = connections_[machine];
      if (!connection) {
        continue;
      }
      connection->flush();
      if (auto message = connection->receive()) {
        if (message->kind >= first_kind &&
            message->kind <= first_kind + static_cast<std::uint8_t>(engines::control_kind::bye)) {
          return engines::control_message{static_cast<int>(machine),
                                          static_cast<engines::control_kind>(message->kind - first_kind),
                                          std::move(message->bytes)};
        }
        continue;  // of the start, too late
      }
      if (connection->is_closed()) {
        connection.reset();
        return engines::control_message{static_cast<int>(machine), engines::control_kind::closed, {}};
      }
      update(machine);
    }
    return std::nullopt;
  }

  void close(int machine) override { connections_[static_cast<std::size_t>(machine)].reset(); }

  [[nodiscard]] int descriptor() const override { return events_.get(); }

 private:
  /// Watches for room to send where something is queued.
  void update(std::size_t machine) {
    auto& connection = connections_[machine];
    if (connection && !connection->is_closed() && connection->wants_write() != wants_write_[machine]) {
      wants_write_[machine] = connection->wants_write();
      watch(EPOLL_CTL_MOD, machine);
    }
  }

  void watch(int action, std::size_t machine) {
    epoll_event event{};
    event.events = static_cast<std::uint32_t>(EPOLLIN) | (wants_write_[machine] ? EPOLLOUT : 0U);
    if (::epoll_ctl(events_.get(), action, connections_[machine]->fd(), &event) != 0) {
      throw_system("watching a connection to another machine");
    }
  }

  std::vector<std::optional<side_connection>> connections_;  // by machine
  std::vector<bool> wants_write_;
  unique_fd events_;
  std::size_t next_ = 0;
};

}  // namespace hfcomm::rendezvous
