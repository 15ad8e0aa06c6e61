// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include <hfcomm/engine/operation.hpp>
#include <hfcomm/engine/shared_memory/steps.hpp>
#include <hfcomm/machine/waiting.hpp>

namespace hfcomm::engines {

/// Operations between machines whose bytes take another way than slots: one step each, of which the other machines know
/// only where somebody asks.
class quiet_steps {
 public:
  explicit quiet_steps(lockstep& steps) noexcept : steps_(steps) {}

  [[nodiscard]] lockstep& all() const noexcept { return steps_; }

  /// Begins an operation, and publishes its step.
  void begin(const operation& call) {
    steps_.begin(call);
    steps_.header().changes.are_quiet.store(true, std::memory_order_relaxed);
    steps_.publish(call, nullptr, true);
  }

  /// Ends the operation: the other ranks' hashes have said that all have come with the same call.
  void confirm() noexcept { steps_.verified_ = steps_.step_; }

  /// Returns whether all ranks are known to have come to the present step.
  [[nodiscard]] bool all_have_come() const noexcept { return steps_.all_have_come(steps_.step_); }
  /// Returns the ranks that are not known to have come.
  [[nodiscard]] std::vector<int> missing_ranks() const {
    return steps_.waiter_.missing_ranks({lockstep::everyone, steps_.step_});
  }

  /// Compares the present step, to which all have come.
  void check(const operation& call) {
    try {
      steps_.check(call);
    } catch (...) {
      steps_.reported_.set(steps_.step_, true);
      throw;
    }
  }

  /// Waits asleep until the transfers have moved or, unless this rank `has_compared` the step, all are known to have
  /// come. Throws where a rank is lost, the group is broken, or the deadline has passed.
  void wait_for(const operation& call, awaited_transfers& transfers, bool has_compared) {
    const std::uint64_t never = ~std::uint64_t{0};
    steps_.waiter_.wait_long(call, steps_.operations(),
                             {lockstep::everyone, has_compared ? never : steps_.step_, &transfers});
  }

  /// Returns how long this rank waits awake.
  [[nodiscard]] const hfcomm::detail::spin_limits& time_awake() const noexcept { return steps_.waiter_.spin_limits_; }

 private:
  lockstep& steps_;
};

}  // namespace hfcomm::engines
