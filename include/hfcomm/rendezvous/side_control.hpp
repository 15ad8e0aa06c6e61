// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <poll.h>
#include <sys/socket.h>

#include <hfcomm/core/plain_list.hpp>
#include <hfcomm/engine/hierarchical/control_channel.hpp>
#include <hfcomm/machine/unix_socket.hpp>
#include <hfcomm/rendezvous/side_connection.hpp>
#include <hfcomm/rendezvous/side_events.hpp>

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
