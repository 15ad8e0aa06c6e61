// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include <sched.h>
#include <signal.h>

#include <hfcomm/engine/hierarchical/agent_alarm.hpp>
#include <hfcomm/engine/links/link.hpp>
#include <hfcomm/machine/roster.hpp>

namespace hfcomm::engines {

/// The threads that do a machine's agent's work, one at a time: a thread of its own and, while they wait for other
/// ranks anyway, those of the ranks in its process. A rank that does it itself saves two changes of threads.
class agent_thread {
 public:
  /// The longest time between two passes.
  static constexpr std::chrono::milliseconds longest_pause{20};

  using clock = std::chrono::steady_clock;

  /// `do_pass` moves on what is under way, without waiting, and returns whether there was anything. `has_moved` tells
  /// it whether transfers have moved since the pass before.
  agent_thread(std::function<bool(clock::time_point now, bool has_moved)> do_pass, link& over, agent_alarm& alarm)
      : do_pass_(std::move(do_pass)), link_(over), alarm_(alarm) {}
  agent_thread(const agent_thread&) = delete;
  agent_thread& operator=(const agent_thread&) = delete;
  ~agent_thread() {
    if (!creator_.in_creating_process()) {
      (void)thread_.release();  // NOLINT(*unused-return-value): there is no thread in the child of a fork
      return;
    }
    stops_.store(true);
    alarm_.bell()->ring();
    if (thread_) {
      thread_->join();
    }
  }

  void start() {
    thread_ = std::make_unique<std::thread>([this] { run(); });
  }

  /// Returns the lock that protects the work. No rank does a pass while a thread waits here.
  [[nodiscard]] std::unique_lock<std::mutex> lock() {
    claims_.fetch_add(1);
    std::unique_lock held(mutex_);
    claims_.fetch_sub(1);
    return held;
  }

  /// Does a pass, unless another thread is at it, or is about to be. For a rank that waits. With `is_direct`, most
  /// passes move the link's transfers alone, and the agent's thread looks for more only after a millisecond.
  void drive(bool is_direct = false) noexcept {
    if (claims_.load(std::memory_order_relaxed) != 0) {
      return;
    }
    const std::unique_lock held(mutex_, std::try_to_lock);
    if (!held) {
      return;
    }
    const auto now = clock::now();
    driven_until_.store((now + (is_direct ? long_rest_time : rest_time)).time_since_epoch(), std::memory_order_relaxed);
    if (sleeps_.load(std::memory_order_relaxed) && sleeps_.exchange(false)) {
      alarm_.bell()->ring();  // what this rank takes does not wake the thread, which has to prepare its sleep again
    }
    if (is_direct && now < next_pass_) {
      has_moved_ = link_.progress() || has_moved_;
    } else {
      next_pass_ = now + pass_interval;
      static_cast<void>(do_pass_(now, std::exchange(has_moved_, false)));
    }
  }

  /// Lets the agent's thread do the work at once.
  void stop_driving() noexcept {
    driven_until_.store({}, std::memory_order_relaxed);
    alarm_.bell()->ring();
  }

 private:
  /// The time for which the thread looks for more after something has moved. Ranks usually answer at once.
  static constexpr std::chrono::microseconds awake_time{200};
  /// The time for which the thread leaves the work to a rank that has just done a pass.
  static constexpr std::chrono::microseconds rest_time{100};
  static constexpr std::chrono::milliseconds long_rest_time{1};
  /// The time between passes of a rank that waits for the link alone, and moves only that on in between.
  static constexpr std::chrono::microseconds pass_interval{50};

  void run() {
    sigset_t all;
    sigfillset(&all);
    ::pthread_sigmask(SIG_BLOCK, &all, nullptr);
    auto busy_until = clock::now();
    while (!stops_.load()) {
      auto now = clock::now();
      if (const clock::time_point driven(driven_until_.load(std::memory_order_relaxed));
          now < driven && !alarm_.rest(driven - now, driven - now > rest_time)) {
        continue;
      }
      {
        const auto held = lock();
        now = clock::now();
        if (do_pass_(now, std::exchange(has_moved_, false))) {
          busy_until = now + awake_time;
        }
        sleeps_.store(now >= busy_until && link_.prepare_sleep());
      }
      if (sleeps_.load()) {
        alarm_.sleep(link_, longest_pause);
        sleeps_.store(false);
      } else {
        ::sched_yield();
      }
    }
  }

  std::function<bool(clock::time_point, bool)> do_pass_;
  link& link_;
  agent_alarm& alarm_;
  std::mutex mutex_;
  std::atomic<int> claims_{0};  // threads that wait for the mutex
  std::atomic<clock::duration> driven_until_{clock::duration{}};
  clock::time_point next_pass_;
  bool has_moved_ = false;
  std::atomic<bool> sleeps_{false};  // the thread does, or is about to
  std::atomic<bool> stops_{false};
  rendezvous::fork_guard creator_;
  std::unique_ptr<std::thread> thread_;
};

}  // namespace hfcomm::engines
