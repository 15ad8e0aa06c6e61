// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <hfcomm/engine/hierarchical/frame.hpp>
#include <hfcomm/engine/hierarchical/frame_receiver.hpp>
#include <hfcomm/engine/hierarchical/frame_sender.hpp>
#include <hfcomm/engine/links/link.hpp>

namespace hfcomm::engines {

/// An agent's frames to and from the other machines: what is under way, which machines are lost, and how they take
/// leave of each other.
class machine_links {
 public:
  using clock = std::chrono::steady_clock;

  /// The link is open.
  machine_links(std::unique_ptr<link> carrier, int self, int machines)
      : link_(std::move(carrier)), self_(self), sender_(*link_, machines), peers_(static_cast<std::size_t>(machines)) {
    for (int machine = 0; machine < machines; ++machine) {
      if (machine != self_) {
        peer_of(machine).receiver = std::make_unique<frame_receiver>(*link_, machine);
      }
    }
  }

  [[nodiscard]] link& carrier() const noexcept { return *link_; }
  [[nodiscard]] frame_sender& sender() noexcept { return sender_; }

  /// Ends what is under way, so that nothing touches the frames' memory.
  void close() noexcept { link_.reset(); }
  /// Leaves the link's connections to the parent of a fork.
  void leave_to_parent() noexcept {
    (void)link_.release();  // NOLINT(*unused-return-value): closing them would end the parent's
  }

  /// Moves all frames on. Returns whether any has moved.
  bool progress(frame_target& target) {
    bool moved = link_->progress();
    for (peer& other : peers_) {
      if (other.receiver != nullptr && !other.is_lost) {
        moved = other.receiver->progress(target) || moved;
      }
    }
    return moved;
  }

  /// Sends a frame of no group to the other machines.
  void send_to_all(frame_kind kind, int rank = 0) {
    for (int machine = 0; machine < count(); ++machine) {
      if (machine != self_) {
        sender_.send(machine, {.kind = kind, .rank = rank});
      }
    }
  }

  /// Returns whether nothing is under way to or from machines that are not lost.
  [[nodiscard]] bool is_idle() const {
    return sender_.is_idle() && std::ranges::all_of(peers_, [](const peer& other) {
             return other.receiver == nullptr || other.is_lost || other.receiver->is_idle();
           });
  }

  /// Gives up a machine. Returns false where that has been done.
  bool give_up(int machine) {
    if (std::exchange(peer_of(machine).is_lost, true)) {
      return false;
    }
    sender_.close(machine);
    link_->give_up(machine);
    return true;
  }

  /// Calls `report(machine)` for each machine to which the connection has failed for a second. The side channel, which
  /// knows more of a machine that has ended, has the time before.
  template <class Report>
  void report_failing(clock::time_point now, Report&& report) {
    for (int machine = 0; machine < count(); ++machine) {
      peer& other = peer_of(machine);
      if (other.receiver == nullptr || other.is_lost || other.has_left ||
          !(other.receiver->has_failed() || sender_.has_failed(machine))) {
        continue;
      }
      other.fails_since = other.fails_since.value_or(now);
      if (now - *other.fails_since >= std::chrono::seconds(1)) {
        report(machine);
      }
    }
  }

  // Taking leave: a machine ends once each other one has answered its goodbye, or said its own.

  void say_goodbye() {
    if (!std::exchange(has_said_goodbye_, true)) {
      send_to_all(frame_kind::goodbye);
    }
  }
  /// The other machine ends once it has an answer, or this machine's goodbye. So that is the last frame that it takes.
  void take_goodbye(int machine) {
    peer_of(machine).has_left = true;
    if (!has_said_goodbye_) {
      sender_.send(machine, {.kind = frame_kind::goodbye_answer});
    }
    sender_.close(machine);
  }
  void take_goodbye_answer(int machine) { peer_of(machine).has_answered = true; }

  /// Returns whether no other machine needs this one any more.
  [[nodiscard]] bool may_leave() const {
    return sender_.is_idle() && std::ranges::all_of(peers_, [](const peer& other) {
             return other.receiver == nullptr || other.is_lost || other.has_left || other.has_answered;
           });
  }

 private:
  struct peer {
    std::unique_ptr<frame_receiver> receiver;  // null for this machine
    bool is_lost = false;
    bool has_left = false;      // its goodbye has come
    bool has_answered = false;  // it has answered this machine's goodbye
    std::optional<clock::time_point> fails_since;
  };

  [[nodiscard]] int count() const noexcept { return static_cast<int>(peers_.size()); }
  [[nodiscard]] peer& peer_of(int machine) { return peers_[static_cast<std::size_t>(machine)]; }

  std::unique_ptr<link> link_;
  int self_;
  frame_sender sender_;
  std::vector<peer> peers_;  // by machine
  bool has_said_goodbye_ = false;
};

}  // namespace hfcomm::engines
