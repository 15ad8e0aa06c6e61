// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <array>
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

#include <hfcomm/core/plain_list.hpp>
#include <hfcomm/engine/hierarchical/control_channel.hpp>
#include <hfcomm/machine/shared_segment.hpp>
#include <hfcomm/machine/unix_socket.hpp>
#include <hfcomm/rendezvous/side_connection.hpp>

namespace hfcomm::rendezvous {

/// Sends what is queued, and waits until each peer has read it and closed its end, but not longer than `limit` for all.
/// Then closes: a connection that is closed with unread bytes may lose what was sent last.
inline void close_when_read(std::span<std::optional<side_connection>> connections, std::chrono::milliseconds limit) {
  const auto end = deadline::in(limit);
  std::vector<bool> is_shut(connections.size());
  detail::plain_list<pollfd> events;
  do {
    static_cast<void>(::poll(events.data(), static_cast<nfds_t>(events.size()), events.empty() ? 0 : 20));
    events.clear();
    for (std::size_t index = 0; index < connections.size(); ++index) {
      auto& connection = connections[index];
      while (connection && connection->receive()) {
      }
      if (connection && !connection->is_closed()) {
        if (!connection->wants_write() && !is_shut[index]) {
          ::shutdown(connection->fd(), SHUT_WR);
          is_shut[index] = true;
        }
        connection->add_to(events);
      }
    }
  } while (!events.empty() && !end.passed());
  for (auto& connection : connections) {
    if (connection) {
      connection->close("closed");
    }
  }
}

/// Tells which of many connections have something to read, or room for what they have queued. The work is that of the
/// connections with news, however many others are silent. Connections have numbers here.
class side_events {
 public:
  /// Throws engine_error.
  side_events() : events_(::epoll_create1(EPOLL_CLOEXEC)) {
    if (!events_) {
      throw_system("creating an epoll descriptor");
    }
  }

  /// A descriptor that is readable when `current` may return something.
  [[nodiscard]] int descriptor() const noexcept { return events_.get(); }

  /// Begins to watch a connection. It counts as one with news, because it may have read messages already.
  void add(std::size_t number, const side_connection& connection) {
    wants_write_.resize(std::max(wants_write_.size(), number + 1));
    wants_write_[number] = connection.wants_write();
    watch(EPOLL_CTL_ADD, number, connection);
    with_news_.push_back(number);
  }

  /// Returns a connection with news, the same one until `pop`; nullopt where there is none. It may be closed.
  [[nodiscard]] std::optional<std::size_t> current() {
    if (with_news_.empty()) {
      std::array<epoll_event, 256> happened;
      const int count = ::epoll_wait(events_.get(), happened.data(), static_cast<int>(happened.size()), 0);
      for (const epoll_event& event : std::span(happened).first(static_cast<std::size_t>(std::max(count, 0)))) {
        with_news_.push_back(event.data.u32);
      }
    }
    return with_news_.empty() ? std::nullopt : std::optional(with_news_.front());
  }
  /// Says that everything of the current connection was read.
  void pop() { with_news_.pop_front(); }

  /// Waits for room to send where something is queued. To be called whenever that may have changed.
  void update(std::size_t number, const side_connection& connection) {
    if (!connection.is_closed() && connection.wants_write() != wants_write_[number]) {
      wants_write_[number] = connection.wants_write();
      watch(EPOLL_CTL_MOD, number, connection);
    }
  }

 private:
  void watch(int action, std::size_t number, const side_connection& connection) {
    epoll_event event{};
    event.events = static_cast<std::uint32_t>(EPOLLIN) | (wants_write_[number] ? EPOLLOUT : 0U);
    event.data.u32 = static_cast<std::uint32_t>(number);
    if (::epoll_ctl(events_.get(), action, connection.fd(), &event) != 0) {
      throw_system("watching a connection to another machine");
    }
  }

  unique_fd events_;  // epoll
  std::deque<std::size_t> with_news_;
  std::vector<bool> wants_write_;  // by number
};

/// The control messages of a machine's agent, over the connections that the start of the job has made.
class side_control final : public engines::control_channel {
 public:
  /// The kinds of the start's own messages are below this.
  static constexpr std::uint8_t first_kind = 64;

  /// `connections` has that to each machine: the root has all but its own, the others only that to machine 0.
  explicit side_control(std::vector<std::optional<side_connection>> connections)
      : connections_(std::move(connections)) {
    for (std::size_t machine = 0; machine < connections_.size(); ++machine) {
      if (connections_[machine]) {
        events_.add(machine, *connections_[machine]);
      }
    }
  }

  void send(int machine, engines::control_kind kind, std::span<const std::byte> bytes) override {
    if (auto& connection = connections_[static_cast<std::size_t>(machine)]) {
      connection->send(static_cast<std::uint8_t>(first_kind + static_cast<std::uint8_t>(kind)), bytes);
      events_.update(static_cast<std::size_t>(machine), *connection);
    }
  }

  [[nodiscard]] std::optional<engines::control_message> receive() override {
    while (const auto machine = events_.current()) {
      auto& connection = connections_[*machine];
      auto message = connection ? connection->receive() : std::nullopt;
      if (message && is_of_agents(*message)) {
        return engines::control_message{static_cast<int>(*machine),
                                        static_cast<engines::control_kind>(message->kind - first_kind),
                                        std::move(message->bytes)};
      }
      if (message) {
        continue;  // of the start, too late
      }
      events_.pop();
      if (connection && connection->is_closed()) {
        connection.reset();
        return engines::control_message{static_cast<int>(*machine), engines::control_kind::closed, {}};
      }
      if (connection) {
        events_.update(*machine, *connection);
      }
    }
    return std::nullopt;
  }

  void close(int machine) override { connections_[static_cast<std::size_t>(machine)].reset(); }

  [[nodiscard]] int descriptor() const override { return events_.descriptor(); }

 private:
  [[nodiscard]] static bool is_of_agents(const side_message& message) {
    return message.kind >= first_kind &&
           message.kind <= first_kind + static_cast<std::uint8_t>(engines::control_kind::bye);
  }

  std::vector<std::optional<side_connection>> connections_;  // by machine
  side_events events_;
};

}  // namespace hfcomm::rendezvous
