// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include <sys/epoll.h>

#include <hfcomm/machine/shared_segment.hpp>
#include <hfcomm/rendezvous/side_connection.hpp>

namespace hfcomm::rendezvous {

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

}  // namespace hfcomm::rendezvous
