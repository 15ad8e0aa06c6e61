// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <span>

#include <hfcomm/engine/hierarchical/machine_agent.hpp>
#include <hfcomm/engine/links/link.hpp>
#include <hfcomm/machine/waiting.hpp>

namespace hfcomm::engines {

/// Carries transfers of this process's ranks over the link of its machine. Any thread may call.
class direct_carrier {
 public:
  /// `agent` outlives this.
  explicit direct_carrier(machine_agent& agent) noexcept : agent_(agent) {}

  /// Returns the most bytes that are sent before the other rank is known to have come.
  [[nodiscard]] std::size_t most_unasked() const noexcept { return agent_.links().carrier().most_unasked(); }

  /// Starts transfers, in this order. They must not move, and their memory has to stay, until they are done.
  void start_all(std::span<link_transfer* const> transfers) noexcept {
    const auto lock = agent_.lock();
    for (link_transfer* one : transfers) {
      agent_.links().carrier().start(*one);
    }
  }

  /// Moves everything on that is under way, without waiting.
  void move_on() noexcept { agent_.drive_link(); }
  /// Leaves that to the agent's own thread, for a rank that sleeps from now on.
  void leave_to_agent() noexcept { agent_.stop_driving(); }

  /// Gives up transfers, which are done when it returns: receives at once, and sends when the other machine has taken
  /// them, or is lost. Where that takes more than ten seconds, it gives up the machine.
  void stop_all(std::span<link_transfer* const> transfers) noexcept {
    for_each_open(transfers, [&](link_transfer& one) {
      if (!one.sends) {
        agent_.links().carrier().cancel(one);
      }
    });
    for (const auto begin = std::chrono::steady_clock::now();
         std::any_of(transfers.begin(), transfers.end(), is_open);) {
      agent_.drive();
      if (!hfcomm::detail::sleep_within(begin, std::chrono::seconds(10))) {
        for_each_open(transfers, [&](link_transfer& one) { agent_.links().give_up(one.machine); });
      }
    }
  }

 private:
  [[nodiscard]] static bool is_open(const link_transfer* one) noexcept {
    return !one->done.load(std::memory_order_acquire);
  }
  template <class Use>
  void for_each_open(std::span<link_transfer* const> transfers, const Use& use) {
    const auto lock = agent_.lock();
    for (link_transfer* one : transfers) {
      if (is_open(one)) {
        use(*one);
      }
    }
  }

  machine_agent& agent_;
};

}  // namespace hfcomm::engines
