// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <span>
#include <thread>
#include <utility>

#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <hfcomm/core/std_algorithm.hpp>

namespace hfcomm::detail {

/// Pauses the core for a moment in a spin loop.
inline void spin_pause() noexcept {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// Returns a time as system calls take it; none where it is negative.
inline timespec timespec_of(std::chrono::nanoseconds time) noexcept {
  const auto count = std::max(time, std::chrono::nanoseconds(0)).count();
  return {static_cast<std::time_t>(count / 1'000'000'000), static_cast<long>(count % 1'000'000'000)};
}

/// Waits until one of these events is there, at most `limit`. Returns whether one is. May return early.
inline bool poll_events(std::span<pollfd> events, std::chrono::nanoseconds limit) noexcept {
  const timespec most = timespec_of(limit);
  return ::ppoll(events.data(), static_cast<nfds_t>(events.size()), &most, nullptr) > 0;
}

/// Waits while `word` is `expected`, at most `limit`. May return early for any reason, as futexes do. std::atomic::wait
/// cannot replace it: libstdc++ makes its futex private to the process.
inline void futex_wait(const std::atomic<std::uint32_t>& word, std::uint32_t expected,
                       std::chrono::nanoseconds limit) noexcept {
  const timespec timeout = timespec_of(limit);
  ::syscall(SYS_futex, &word, FUTEX_WAIT, expected, &timeout, nullptr, 0);
}

/// Wakes all threads, of all processes, that wait on `word`.
inline void futex_wake_all(const std::atomic<std::uint32_t>& word) noexcept {
  ::syscall(SYS_futex, &word, FUTEX_WAKE, 0x7fffffff, nullptr, nullptr, 0);
}

/// Returns the number of cores that a process may run on; 0 is this process.
inline int allowed_cores(pid_t process) noexcept {
  cpu_set_t set;
  CPU_ZERO(&set);
  return ::sched_getaffinity(process, sizeof(set), &set) == 0 ? std::max(1, CPU_COUNT(&set)) : 1;
}

/// Returns whether so many ranks of this machine have to share cores, as far as one of them can tell. A process that
/// may run on fewer cores than its parent was bound to them by a launcher, which has other cores for the other ranks.
inline bool ranks_share_cores(int ranks, bool processes) noexcept {
  return ranks > allowed_cores(0) && (!processes || ranks > allowed_cores(::getppid()));
}

/// Returns the time after which a rank warns about the ranks that it waits for: 30 s, or HFCOMM_WARN_AFTER_MS.
inline std::chrono::milliseconds warning_time() noexcept {
  const char* text = std::getenv("HFCOMM_WARN_AFTER_MS");
  return std::chrono::milliseconds(text != nullptr ? std::clamp(std::atol(text), 1L, 1'000'000'000L) : 30'000L);
}

/// Sleeps for a millisecond and returns true; returns false at once where `limit` has passed since `begin`. For a loop
/// that looks for something. It counts time, not looks, because on a busy machine each sleep takes several
/// milliseconds.
inline bool sleep_within(std::chrono::steady_clock::time_point begin, std::chrono::milliseconds limit) {
  if (std::chrono::steady_clock::now() - begin >= limit) {
    return false;
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return true;
}

/// Returns the time that `first` holds, on the steady clock. Where it holds 0, it is set to the present one. Any thread
/// may call.
inline std::chrono::steady_clock::time_point time_of_first(std::atomic<std::int64_t>& first) noexcept {
  using clock = std::chrono::steady_clock;
  std::int64_t time = 0;
  const std::int64_t now = clock::now().time_since_epoch().count();
  if (first.compare_exchange_strong(time, now)) {
    time = now;
  }
  return clock::time_point(clock::duration(time));
}

/// The time for which this rank has run since this was made. Counts at most 0.2 s between two updates: a rank that did
/// not update it was stopped (by Ctrl-Z, a debugger, or the machine's sleep), and nothing that it waits for had a
/// chance.
class running_time {
 public:
  std::chrono::steady_clock::duration update() noexcept {
    const auto now = std::chrono::steady_clock::now();
    total_ +=
        std::min<std::chrono::steady_clock::duration>(now - std::exchange(last_, now), std::chrono::milliseconds(200));
    return total_;
  }

 private:
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
  std::chrono::steady_clock::duration total_{};
};

/// The times for which a rank waits awake for its peers. First it spins for a few microseconds, unless there are more
/// ranks than cores. Then it yields the core between checks, because the awaited rank may need this very core. Then it
/// sleeps.
struct spin_limits {
  std::chrono::nanoseconds spin{};   ///< Time of spinning with pauses.
  std::chrono::nanoseconds yield{};  ///< Time of yielding after that.

  /// Returns the times for a rank with a core of its own, or without; HFCOMM_SPIN_US overrides them.
  static spin_limits of(bool own_core) noexcept {
    spin_limits result;
    result.spin = std::chrono::microseconds(own_core ? 5 : 0);
    result.yield = std::chrono::milliseconds(1);
    if (const char* text = std::getenv("HFCOMM_SPIN_US"); text != nullptr) {
      result.spin = std::chrono::microseconds(std::clamp(std::atol(text), 0L, 1'000'000L));
      result.yield = {};
    }
    return result;
  }
};

/// Calls `ready` until it returns true or the times of `limits` are over; returns whether it did.
template <class Ready>
bool wait_briefly(const spin_limits& limits, Ready&& ready) {
  if (ready()) {
    return true;
  }
  using clock = std::chrono::steady_clock;
  if (limits.spin.count() > 0) {
    auto end = clock::time_point::max();  // what comes soon does not pay for a look at the clock
    do {
      for (int check = 0; check < 64; ++check) {
        if (ready()) {
          return true;
        }
        spin_pause();
      }
      end = std::min(end, clock::now() + limits.spin);
    } while (clock::now() < end);
  }
  if (limits.yield.count() > 0) {
    const auto end = clock::now() + limits.yield;
    do {
      for (int check = 0; check < 4; ++check) {
        ::sched_yield();
        if (ready()) {
          return true;
        }
      }
    } while (clock::now() < end);
  }
  return false;
}

/// Calls `is_done` until it returns true, for what another device or thread does: at first without a pause, then with
/// pauses of up to 0.2 ms. Calls `check()` every 5 ms in between. Both may throw.
template <class Done, class Check>
void poll_until(Done&& is_done, Check&& check) {
  using clock = std::chrono::steady_clock;
  constexpr std::chrono::milliseconds check_interval(5);
  const auto start = clock::now();
  auto next_check = start + check_interval;
  auto pause = std::chrono::microseconds(10);
  while (!is_done()) {
    const auto now = clock::now();
    if (now - start < std::chrono::microseconds(20)) {
      continue;
    }
    if (now >= next_check) {
      next_check = now + check_interval;
      check();
    }
    std::this_thread::sleep_for(pause);
    pause = std::min<std::chrono::microseconds>(pause * 2, std::chrono::microseconds(200));
  }
}

/// Waits as wait_briefly does, but learns: where spinning was in vain several times in a row, it is left out. The core
/// then goes to the awaited rank at once, if that needs this very one. Not where the user has set the time of spinning,
/// after which nothing yields. Any thread may call.
class learning_wait {
 public:
  explicit learning_wait(const spin_limits& limits) noexcept : limits_(limits) {}

  template <class Ready>
  bool wait_briefly(Ready&& ready) noexcept {
    const std::uint32_t number = in_vain_.load(std::memory_order_relaxed);
    if (number < most_in_vain || number % retry_interval == 0 || limits_.yield.count() == 0) {
      if (detail::wait_briefly({limits_.spin, {}}, ready)) {
        in_vain_.store(0, std::memory_order_relaxed);
        return true;
      }
    }
    in_vain_.store(number + 1, std::memory_order_relaxed);
    return detail::wait_briefly({{}, limits_.yield}, ready);
  }

 private:
  static constexpr std::uint32_t most_in_vain = 4;
  static constexpr std::uint32_t retry_interval = 64;

  spin_limits limits_;
  std::atomic<std::uint32_t> in_vain_{0};  // waits since spinning last sufficed
};

}  // namespace hfcomm::detail
