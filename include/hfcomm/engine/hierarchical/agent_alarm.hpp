// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <chrono>
#include <iterator>
#include <memory>
#include <utility>

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <hfcomm/engine/links/link.hpp>
#include <hfcomm/machine/agent_bell.hpp>
#include <hfcomm/machine/shared_segment.hpp>
#include <hfcomm/machine/waiting.hpp>

namespace hfcomm::engines {

/// Everything that wakes a sleeping agent: its link, its bell, and other descriptors.
class agent_alarm {
 public:
  /// Throws engine_error.
  explicit agent_alarm(std::shared_ptr<const rendezvous::agent_bell> bell)
      : bell_(std::move(bell)), events_(::epoll_create1(EPOLL_CLOEXEC)) {
    if (!events_) {
      rendezvous::throw_system("creating an epoll descriptor");
    }
    watch(bell_->event());
  }

  [[nodiscard]] const std::shared_ptr<const rendezvous::agent_bell>& bell() const noexcept { return bell_; }

  /// Lets a descriptor that becomes readable wake the agent. Throws engine_error.
  void watch(int descriptor) {
    epoll_event event{};
    event.events = EPOLLIN;
    if (::epoll_ctl(events_.get(), EPOLL_CTL_ADD, descriptor, &event) != 0) {
      rendezvous::throw_system("epoll_ctl");
    }
  }

  /// Waits until something may be there to do, but not longer than `most`. To be called after `over.prepare_sleep()`.
  void sleep(link& over, std::chrono::microseconds most) {
    if (!hear_ranks()) {
      over.sleep(events_.get(), most);
    }
    bell_->board().sleeping.store(0);
    silence();
  }

  /// Waits while a rank does the agent's work, but not longer than `most`. Returns whether the bell or a descriptor has
  /// called before. `hears`: so do ranks that have something for other machines.
  bool rest(std::chrono::nanoseconds most, bool hears) {
    pollfd event{events_.get(), POLLIN, 0};
    const bool is_called = (hears && hear_ranks()) || detail::poll_events({&event, 1}, most);
    bell_->board().sleeping.store(0);
    silence();
    return is_called;
  }

 private:
  /// Lets ranks that have something for other machines ring the bell. Returns whether one had something before.
  bool hear_ranks() {
    auto& board = bell_->board();
    board.sleeping.store(1);
    return std::any_of(std::begin(board.groups), std::end(board.groups),
                       [](const auto& word) { return word.load() != 0; });
  }
  void silence() const noexcept {
    eventfd_t count = 0;
    static_cast<void>(::eventfd_read(bell_->event(), &count));
  }

  std::shared_ptr<const rendezvous::agent_bell> bell_;
  rendezvous::unique_fd events_;  // an epoll
};

}  // namespace hfcomm::engines
