// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>

#include <sys/eventfd.h>

#include <hfcomm/machine/shared_segment.hpp>

namespace hfcomm::rendezvous {

/// Memory in which the ranks of a machine tell its agent which groups have something for other machines.
struct agent_board {
  static constexpr std::uint32_t bits = 4096;  // groups beyond share bits

  alignas(128) std::atomic<std::uint32_t> sleeping{0};  // 1: the agent waits for the bell
  alignas(128) std::atomic<std::uint64_t> groups[bits / 64]{};
};

/// Wakes the agent of this machine. Any thread of any rank may call.
class agent_bell {
 public:
  /// `board` is laid out. `event` is the agent's eventfd.
  agent_bell(std::shared_ptr<shared_segment> board, unique_fd event)
      : segment_(std::move(board)),
        board_(std::launder(reinterpret_cast<agent_board*>(segment_->data()))),
        event_(std::move(event)) {}

  /// Makes the bell of a new agent. Its board is in `segment`, which is fresh. Throws engine_error.
  static std::shared_ptr<const agent_bell> make(std::shared_ptr<shared_segment> segment) {
    ::new (segment->data()) agent_board{};
    unique_fd event(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!event) {
      throw_system("eventfd");
    }
    return std::make_shared<const agent_bell>(std::move(segment), std::move(event));
  }

  void ring(std::uint32_t group) const noexcept {
    board_->groups[group / 64].fetch_or(std::uint64_t{1} << (group % 64));
    if (board_->sleeping.load() != 0 && board_->sleeping.exchange(0) != 0) {
      ring();
    }
  }
  void ring() const noexcept { static_cast<void>(::eventfd_write(event_.get(), 1)); }

  [[nodiscard]] agent_board& board() const noexcept { return *board_; }
  [[nodiscard]] const std::shared_ptr<shared_segment>& segment() const noexcept { return segment_; }
  [[nodiscard]] int event() const noexcept { return event_.get(); }

 private:
  std::shared_ptr<shared_segment> segment_;
  agent_board* board_;
  unique_fd event_;
};

}  // namespace hfcomm::rendezvous
