// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include <sched.h>

#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/core/error.hpp>
#include <hfcomm/core/function_ref.hpp>
#include <hfcomm/core/std_algorithm.hpp>
#include <hfcomm/engine/call_text.hpp>
#include <hfcomm/engine/host_engine.hpp>
#include <hfcomm/engine/operation.hpp>
#include <hfcomm/engine/shared_memory/health.hpp>
#include <hfcomm/engine/shared_memory/memory.hpp>
#include <hfcomm/machine/wait_record.hpp>
#include <hfcomm/machine/waiting.hpp>

namespace hfcomm::engines {

/// Transfers between machines that a rank waits for, beside steps.
class awaited_transfers {
 public:
  /// Returns whether the rank that waits has something to do.
  [[nodiscard]] virtual bool have_moved() noexcept = 0;
  /// Returns the ranks that have not come, or whose transfers have not ended. It is called now and then.
  virtual std::vector<int> missing() = 0;

 protected:
  ~awaited_transfers() = default;
};

/// A rank's waits for the steps of other ranks: awake at first, then asleep. No wait outlasts the loss of a rank that
/// it waits for, or its deadline.
class step_waiter {
  friend class quiet_steps;

 public:
  /// Stands for all ranks of the group.
  static constexpr int everyone = -1;
  /// A step that one rank, or everyone, has to publish.
  struct awaited_step {
    int rank;
    std::uint64_t step;
    awaited_transfers* transfers = nullptr;  // the wait also ends when they have moved
  };

  /// `health` outlives this.
  [[gnu::cold]] explicit step_waiter(const shared_memory_health& health)
      : health_(health),
        memory_(health.memory()),
        shares_cores_(health.shares_cores()),
        spin_limits_(awake_limits()),
        agent_(health.local_agent()),
        neighbours_(health.neighbours()) {}
  step_waiter(const step_waiter&) = delete;
  step_waiter& operator=(const step_waiter&) = delete;

  /// Waits until `arrived()`, which tells whether `awaited` has come. `number` is that of the operation. Throws where a
  /// rank is lost, the group is broken, or the deadline has passed.
  template <class Arrived>
  void wait(const operation& call, std::uint64_t number, const awaited_step& awaited, Arrived&& arrived) {
    if (agent_ == nullptr) {
      if (!detail::wait_briefly(spin_limits_, arrived)) {
        wait_long(call, number, awaited);
      }
      return;
    }
    if (!arrived() && !drive_briefly(awaited)) {
      wait_long(call, number, awaited);
    }
  }

  [[nodiscard]] bool has_come(int rank, std::uint64_t step) const noexcept {
    return memory_.cell(rank, step).step.load(std::memory_order_seq_cst) >= step;
  }

  /// Ends the waits of another thread of this rank, and those that come. Any thread may call.
  void cancel() noexcept {
    unwinding_.store(std::uncaught_exceptions() > 0);
    cancelled_.store(true);
    memory_.wake();
  }
  [[nodiscard]] bool is_cancelled() const noexcept { return cancelled_.load(std::memory_order_relaxed); }

  /// Returns whether the job has more ranks on this machine than cores.
  [[nodiscard]] bool shares_cores() const noexcept { return shares_cores_; }

  void set_yields_core(bool yields) noexcept { spin_limits_ = yields ? detail::spin_limits{} : awake_limits(); }

  /// See host_engine.
  [[gnu::always_inline]] void set_caller(caller_state state) noexcept {
    const std::uint32_t thread = rendezvous::this_thread();
    caller_.store(thread);
    caller_waits_.store(state == caller_state::waits);
    layout::rank_block& mine = memory_.block(health_.rank());
    mine.caller.store(thread);  // another one may have performed the last operation
    mine.resting_caller.store(state == caller_state::rests ? thread : 0);
  }

 private:
  static constexpr std::chrono::milliseconds check_interval{20};
  static constexpr std::chrono::milliseconds longest_mutual_wait{5000};
  static constexpr std::chrono::nanoseconds longest_gap{1'000'000'000};  // in which it need not be seen

  [[nodiscard]] layout::group_header& header() const noexcept { return memory_.header(); }
  [[nodiscard]] error_context context(const operation& call, std::uint64_t number) const {
    return {health_.rank(), health_.size(), call_name(call), number, call.where};
  }

  /// Returns whether the step has come. The ranks before `first` have published it; moves `first` on to the next that
  /// has not.
  [[nodiscard]] bool has_arrived(const awaited_step& awaited, int& first) const noexcept {
    if (awaited.transfers != nullptr && awaited.transfers->have_moved()) {
      return true;
    }
    if (awaited.rank != everyone) {
      return has_come(awaited.rank, awaited.step);
    }
    while (first < health_.size() && has_come(first, awaited.step)) {
      ++first;
    }
    return first == health_.size();
  }

  /// Does the work of this machine's agent until the step has come or the time is over; returns whether it has. A pass
  /// takes longer than a look at memory, so the core is yielded after each.
  bool drive_briefly(const awaited_step& awaited) {
    let_neighbours_publish(awaited.step);
    int first = 0;
    const auto end = std::chrono::steady_clock::now() + spin_limits_.spin + spin_limits_.yield;
    do {
      agent_->drive();
      if (has_arrived(awaited, first)) {
        return true;
      }
      ::sched_yield();
    } while (std::chrono::steady_clock::now() < end);
    return has_arrived(awaited, first);
  }

  /// Returns the times for waiting awake. A step across machines takes so long that there is no use in spinning before
  /// yielding.
  [[nodiscard]] detail::spin_limits awake_limits() const noexcept {
    return detail::spin_limits::of(!shares_cores_ && !memory_.spans_machines());
  }

  /// Gives the other ranks of this machine a moment to publish, too. One message then carries what all of them wrote.
  void let_neighbours_publish(std::uint64_t step) const noexcept {
    const auto have_come = [&](int rank) { return has_come(rank, step); };
    for (int turn = 0; turn < 3 && !std::all_of(neighbours_.begin(), neighbours_.end(), have_come); ++turn) {
      ::sched_yield();
    }
  }

  /// Sleeps until the step has come. Throws where a rank is lost, the group is broken, or the deadline has passed.
  [[gnu::cold]] void wait_long(const operation& call, std::uint64_t number, const awaited_step& awaited) {
    detail::running_time waiting;
    auto next_check = waiting.update() + check_interval;
    mutual_wait mutual;
    bool has_shown = false;
    bool warned = false;
    int first = 0;
    while (true) {
      count_sleeper(awaited, 1);
      const std::uint32_t epoch = header().wake_epoch.load();
      if (!has_arrived(awaited, first) && !health_.is_broken() && !cancelled_.load()) {
        detail::futex_wait(header().wake_epoch, epoch, check_interval);
      }
      count_sleeper(awaited, -1);
      if (has_arrived(awaited, first)) {
        if (has_shown) {
          health_.wait_of(health_.rank()).clear();
        }
        return;
      }
      if (cancelled_.load()) {
        // The others must know before this rank frees its memory.
        health_.abandon(context(call, number), unwinding_.load());
        detail::throw_error<engine_error>(context(call, number),
                                          {"cancelled: this rank is destroying the group or the object that uses it"});
      }
      if (health_.is_broken()) {
        health_.throw_break_error(context(call, number));
      }
      const auto waited = waiting.update();
      if (waited < next_check) {
        continue;
      }
      next_check = waited + check_interval;
      const error_context here = context(call, number);
      const auto missing = awaited.transfers != nullptr ? awaited.transfers->missing() : missing_ranks(awaited);
      if (missing.empty()) {
        continue;  // they have come just now
      }
      if (const auto loss = health_.find_loss(missing, [&](int rank) { return has_come(rank, awaited.step); })) {
        health_.break_group(here, *loss);
      }
      check_mutual_wait(here, missing, waited, mutual);
      has_shown = true;
      if (!warned && waited >= warn_after_) {
        warned = true;
        health_.warn(here, missing, waited);
      }
      if (call.timeout.count() > 0 && waited >= call.timeout) {
        if (has_arrived(awaited, first)) {
          return;
        }
        health_.break_group(
            here, missing,
            detail::concat({list_ranks(missing), " did not arrive at ", call_name(call), " #", number, " (",
                            detail::describe(call.where), ") within ", format_duration(call.timeout),
                            " (timed out), so rank ", health_.rank(), " gave up."}));
      }
    }
  }

  /// The time in which this rank and another one have waited for each other, counted from the begin of a wait here.
  struct mutual_wait {
    std::chrono::nanoseconds begin{};
    std::chrono::nanoseconds last_seen = std::chrono::seconds(-2);  // never
  };

  /// Shows the ranks of this machine what this one waits for. Breaks the group where no rank can come: where this wait
  /// holds up the caller's thread (see host_engine::set_caller), and the thread of a missing one waits for this rank
  /// where only this thread can come.
  [[gnu::cold]] void check_mutual_wait(const error_context& here, const std::vector<int>& missing,
                                       std::chrono::nanoseconds waited, mutual_wait& mutual) const {
    const std::uint32_t caller = caller_.load();
    const bool holds_up_caller = caller_waits_.load() || caller == rendezvous::this_thread();
    const auto& members = health_.members();
    const auto& job = health_.job();
    const int index = members[static_cast<std::size_t>(here.rank)];
    int shown = missing.front();  // better one on this machine, which can see it
    for (const int rank : missing) {
      shown = job->machine(members[static_cast<std::size_t>(shown)]) == job->machine(index) ? shown : rank;
      const std::uint32_t theirs = memory_.block(rank).resting_caller.load();
      if (!holds_up_caller || theirs == 0 || !health_.wait_of(rank).is_of(theirs, index, caller)) {
        continue;
      }
      mutual.begin = waited - mutual.last_seen > longest_gap ? waited : mutual.begin;
      mutual.last_seen = waited;
      if (waited - mutual.begin >= mutual_after_) {
        constexpr const char* cause =
            " of this group, which waits for it: it has left a loop before the others, or calls in another order";
        const std::string call = health_.wait_of(rank).call();
        health_.break_group(here, {rank,
                                   {shared_memory_health::kind::left,
                                    detail::concat({"waits in ", call, " for rank ", here.rank, cause})}});
      }
    }
    health_.wait_of(here.rank).write(
        holds_up_caller ? caller : rendezvous::this_thread(), members[static_cast<std::size_t>(shown)],
        memory_.block(shown).caller.load(std::memory_order_relaxed),
        detail::concat({here.operation, " #", here.sequence, " (", detail::describe(here.where), ')'}));
  }

  /// Counts this rank among those that have to be woken: by the last rank that publishes a step, or by `awaited` alone.
  void count_sleeper(const awaited_step& awaited, int change) const noexcept {
    const auto difference = static_cast<std::uint32_t>(change);
    header().sleepers.fetch_add(difference);
    if (awaited.rank != everyone) {
      memory_.block(awaited.rank).awaited.fetch_add(difference);
    }
  }

  [[nodiscard]] std::vector<int> missing_ranks(const awaited_step& awaited) const {
    std::vector<int> missing;
    for (int rank = 0; rank < health_.size(); ++rank) {
      if ((awaited.rank == everyone || rank == awaited.rank) && !has_come(rank, awaited.step)) {
        missing.push_back(rank);
      }
    }
    return missing;
  }

  const shared_memory_health& health_;
  const group_memory& memory_;
  const bool shares_cores_;
  detail::spin_limits spin_limits_;
  std::chrono::milliseconds warn_after_ = detail::warning_time();
  std::chrono::milliseconds mutual_after_ = warn_after_ < longest_mutual_wait ? warn_after_ : longest_mutual_wait;
  const std::shared_ptr<agent_port> agent_;  // of this machine, where it is in this process
  const std::vector<int> neighbours_;        // ranks on this machine
  std::atomic<std::uint32_t> caller_{0};     // the thread that gives this group its operations; 0: any may
  std::atomic<bool> caller_waits_{false};
  std::atomic<bool> cancelled_{false};
  std::atomic<bool> unwinding_{false};  // it was an exception that cancelled it
};

}  // namespace hfcomm::engines
