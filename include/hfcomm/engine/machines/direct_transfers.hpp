// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <utility>
#include <vector>

#include <sched.h>

#include <hfcomm/core/function_ref.hpp>
#include <hfcomm/core/hash.hpp>
#include <hfcomm/core/plain_list.hpp>
#include <hfcomm/engine/links/link.hpp>
#include <hfcomm/engine/machines/direct_carrier.hpp>
#include <hfcomm/engine/machines/quiet_steps.hpp>
#include <hfcomm/engine/operation.hpp>
#include <hfcomm/engine/shared_memory/memory.hpp>
#include <hfcomm/engine/shared_memory/steps.hpp>

namespace hfcomm::engines {

/// The beginning of the first message from one rank to another, in each operation.
struct direct_header {
  std::uint64_t call = 0;  ///< Hash of the rank's step and call.
  double factor = 1;       ///< operation::factor
};

/// The transfers of one operation after another between ranks of different machines. The thread that waits for them
/// moves them on.
///
/// Each rank sends every other one a header in each operation, so that none leaves it before all have come with the
/// same call. Where it differs, where a transfer fails, or where nothing has ended for 20 ms, the rank asks for the
/// steps of all others (see quiet_steps). Once they are there, it compares them, and throws what the comparison finds,
/// as the other ranks do that are in the same operation. Until then it waits as for any step: for losses and for its
/// deadline, too.
///
/// One thread at a time may call.
class direct_transfers final : private awaited_transfers {
 public:
  /// The two directions in which an algorithm may send between the same ranks, each in its own order.
  enum class channel : std::uint64_t { first, second };

  direct_transfers(lockstep& steps, machine_agent& agent, const std::vector<int>& machine_of)
      : steps_(steps), carrier_(agent), machine_of_(machine_of) {}

  [[nodiscard]] int rank() const noexcept { return steps_.all().rank(); }
  [[nodiscard]] int size() const noexcept { return steps_.all().size(); }
  [[nodiscard]] std::size_t most_unasked() const noexcept { return carrier_.most_unasked(); }

  /// Makes room for so many transfers that are under way or have just ended. Throws std::bad_alloc.
  void reserve(std::size_t count) {
    for (auto* list : {&free_, &starting_, &open_, &ended_}) {
      list->reserve(count);
    }
    failed_.reserve(machine_of_.size());
    while (all_.size() < count) {
      free_.push_back(&all_.emplace_back());
    }
  }

  /// Begins an operation.
  void begin(const operation& call) {
    steps_.begin(call);
    call_ = hfcomm::detail::mix(hfcomm::detail::mix(0, steps_.all().step()), call.signature());
    number_ = hfcomm::detail::mix(hfcomm::detail::mix(steps_.all().memory().header().number, 1), steps_.all().step());
    is_in_doubt_ = false;
    has_compared_ = false;
    failed_.clear();
  }

  /// Ends an operation for which headers of all ranks have come and fit.
  void end() noexcept { steps_.confirm(); }

  [[nodiscard]] direct_header header_for(const operation& call) const noexcept { return {call_, call.factor}; }

  /// Returns whether a header's rank has made the same call as this one. Otherwise `run` finds out what differs before
  /// it asks again.
  [[nodiscard]] bool fits(const direct_header& theirs) noexcept {
    const bool fit = has_compared_ || theirs.call == call_;
    is_in_doubt_ = is_in_doubt_ || !fit;
    return fit;
  }

  /// Adds a transfer, which `run` starts. No more than there is room for are under way at a time.
  link_transfer* send(int rank, std::span<const std::byte> bytes, channel through = channel::first) noexcept {
    // A link does not write what it sends.
    return add(rank, {const_cast<std::byte*>(bytes.data()), bytes.size()}, through, true);  // NOLINT(*const-cast*)
  }
  link_transfer* receive(int rank, std::span<std::byte> bytes, channel through = channel::first) noexcept {
    return add(rank, bytes, through, false);
  }

  /// Moves the transfers on until there are none and `advance()` returns true. That is called whenever some have ended.
  /// It may add others, and has to forget those that it sees done: they serve again.
  void run(const operation& call, function_ref<bool()> advance) {
    try {
      while (true) {
        start();
        const bool is_over = !is_stuck() && advance();
        if (!is_stuck()) {
          move_all(ended_, free_);
        }
        if (!starting_.empty()) {
          continue;
        }
        if (is_over && open_.empty()) {
          return;
        }
        if (!await_any()) {
          resolve(call);
        }
        take_ended();
      }
    } catch (...) {
      move_all(starting_, free_);
      carrier_.stop_all(open_);
      take_ended();
      move_all(ended_, free_);
      throw;
    }
  }

 private:
  using clock = std::chrono::steady_clock;

  struct ranked_transfer : link_transfer {
    int rank = -1;
  };

  link_transfer* add(int rank, std::span<std::byte> bytes, channel through, bool sends) noexcept {
    auto* const one = static_cast<ranked_transfer*>(free_.back());
    free_.erase(free_.size() - 1);
    one->rank = rank;
    one->machine = machine_of_[static_cast<std::size_t>(rank)];
    one->channel = number_ ^ static_cast<std::uint64_t>(through) << 63;
    one->bytes = bytes;
    one->sends = sends;
    one->failed = false;
    one->done.store(false, std::memory_order_relaxed);
    one->native = nullptr;
    starting_.push_back(one);
    return one;
  }

  void start() noexcept {
    if (!starting_.empty()) {
      carrier_.start_all(starting_);
      move_all(starting_, open_);
    }
  }

  /// Takes those that are done out of those that are under way.
  void take_ended() noexcept {
    for (std::size_t place = 0; place < open_.size();) {
      link_transfer* const one = open_[place];
      if (!one->done.load(std::memory_order_acquire)) {
        ++place;
        continue;
      }
      open_.erase(place);
      ended_.push_back(one);
      if (one->failed && std::find(failed_.begin(), failed_.end(), rank_of(one)) == failed_.end()) {
        failed_.push_back(rank_of(one));
      }
    }
  }
  static void move_all(hfcomm::detail::plain_list<link_transfer*>& from,
                       hfcomm::detail::plain_list<link_transfer*>& to) noexcept {
    for (link_transfer* one : from) {
      to.push_back(one);
    }
    from.clear();
  }

  [[nodiscard]] static int rank_of(const link_transfer* one) noexcept {
    return static_cast<const ranked_transfer*>(one)->rank;
  }

  /// Returns whether the operation does not go on before something is found out about other ranks.
  [[nodiscard]] bool is_stuck() const noexcept { return is_in_doubt_ || !failed_.empty(); }

  [[nodiscard]] bool have_moved() noexcept override {
    return !is_stuck() &&
           std::any_of(open_.begin(), open_.end(), [](auto* one) { return one->done.load(std::memory_order_acquire); });
  }

  /// Waits awake until a transfer has ended; returns false where none has.
  [[nodiscard]] bool await_any() noexcept {
    const auto& limits = steps_.time_awake();
    const auto begin = clock::now();
    for (auto now = begin; !is_stuck(); now = clock::now()) {
      carrier_.move_on();
      if (have_moved()) {
        return true;
      }
      if (now >= begin + limits.spin + limits.yield) {
        break;
      }
      if (now >= begin + limits.spin) {
        ::sched_yield();
      }
    }
    carrier_.leave_to_agent();
    return false;
  }

  /// Waits asleep until a transfer has ended, and finds out about other ranks.
  [[gnu::cold]] void resolve(const operation& call) {
    if (is_stuck()) {
      steps_.all().ask();
    }
    steps_.wait_for(call, *this, has_compared_);
    if (!has_compared_ && steps_.all_have_come()) {
      steps_.check(call);
      has_compared_ = true;
      is_in_doubt_ = false;
    }
  }

  [[nodiscard]] std::vector<int> missing() override {
    if (!has_compared_) {
      steps_.all().ask();
      return steps_.missing_ranks();
    }
    std::vector<int> ranks = failed_;
    for (const link_transfer* one : open_) {
      if (!one->done.load(std::memory_order_acquire) &&
          std::find(ranks.begin(), ranks.end(), rank_of(one)) == ranks.end()) {
        ranks.push_back(rank_of(one));
      }
    }
    return ranks;
  }

  quiet_steps steps_;
  direct_carrier carrier_;
  std::vector<int> machine_of_;      // by rank
  std::deque<ranked_transfer> all_;  // each of which is in one of these lists:
  hfcomm::detail::plain_list<link_transfer*> free_;
  hfcomm::detail::plain_list<link_transfer*> starting_;
  hfcomm::detail::plain_list<link_transfer*> open_;
  hfcomm::detail::plain_list<link_transfer*> ended_;  // which `advance` has not seen

  // The operation under way:
  std::uint64_t call_ = 0;
  std::uint64_t number_ = 0;   // of its first channel
  bool is_in_doubt_ = false;   // another rank's call differs
  bool has_compared_ = false;  // all ranks have come, with the same call
  std::vector<int> failed_;    // ranks to or from which a transfer has failed
};

}  // namespace hfcomm::engines
