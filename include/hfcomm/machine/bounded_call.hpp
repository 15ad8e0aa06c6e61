// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <utility>

#include <unistd.h>

namespace hfcomm::engines {

/// Tells whether this process has left main. From then on, destructors must not call libraries that may be gone. It is
/// known before any static object is destroyed.
class process_end {
 public:
  static void watch() noexcept {
    static const int registered = std::atexit([] { flag().store(true); });
    (void)registered;
    thread_local const end_of_main of_this_thread;
    (void)of_this_thread;
  }
  [[nodiscard]] static bool begun() noexcept { return flag().load(); }

 private:
  /// Detects the end of the main thread, whose thread_local variables are destroyed first.
  struct end_of_main {
    end_of_main() noexcept = default;
    end_of_main(const end_of_main&) = delete;
    end_of_main& operator=(const end_of_main&) = delete;
    ~end_of_main() {
      if (::getpid() == ::gettid()) {
        flag().store(true);
      }
    }
  };

  static std::atomic<bool>& flag() noexcept {
    static std::atomic<bool> raised{false};
    return raised;
  }
};

/// Runs `work` on a thread of its own and waits for it. For calls into libraries that may never return.
///
/// Returns false where the work has not ended within `limit` (zero or less: no limit). Calls `check()` every few
/// milliseconds; it may throw, which ends the wait. The work may go on after this returns or throws, so it must own
/// what it uses. Throws std::system_error where the system has no thread to give.
template <class Work, class Check>
bool run_watched(std::chrono::nanoseconds limit, Work work, Check&& check) {
  struct progress {
    std::mutex mutex;
    std::condition_variable changed;
    bool done = false;
  };
  const auto state = std::make_shared<progress>();
  std::thread([state, work = std::move(work)]() mutable {
    {
      auto mine = std::move(work);
      mine();  // is destroyed, with all that it owns, before the caller continues
    }
    const std::scoped_lock lock(state->mutex);
    state->done = true;
    state->changed.notify_all();
  }).detach();
  const auto start = std::chrono::steady_clock::now();
  std::unique_lock lock(state->mutex);
  while (!state->changed.wait_for(lock, std::chrono::milliseconds(5), [&] { return state->done; })) {
    lock.unlock();
    check();
    lock.lock();
    if (limit > std::chrono::nanoseconds::zero() && std::chrono::steady_clock::now() - start >= limit) {
      return state->done;
    }
  }
  return true;
}

/// Does the same without a check. Returns false also where the system has no thread to give.
template <class Work>
bool run_bounded(std::chrono::nanoseconds limit, Work work) noexcept {
  try {
    return run_watched(limit, std::move(work), [] {});
  } catch (const std::system_error&) {
    return false;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

}  // namespace hfcomm::engines
