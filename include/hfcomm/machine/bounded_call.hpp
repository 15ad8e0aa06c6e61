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

/// Whether this process has left main. Libraries may be gone then whose functions destructors would call. Objects of
/// the main thread come to know before anything static is destroyed.
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
  /// The main thread's own variables go first.
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

/// Runs `work` on a thread of its own and waits for it; false where it has not ended within `patience` (zero or less:
/// for ever). Meanwhile `look()` may throw, every few milliseconds. However this ends, the work may go on, so it must
/// own what it uses. For calls into libraries that may never return. Throws std::system_error where there is no thread.
template <class Work, class Look>
bool run_watched(std::chrono::nanoseconds patience, Work work, Look&& look) {
  struct progress {
    std::mutex mutex;
    std::condition_variable changed;
    bool done = false;
  };
  const auto state = std::make_shared<progress>();
  std::thread([state, work = std::move(work)]() mutable {
    {
      auto mine = std::move(work);
      mine();  // what it holds ends with it, before anybody goes on
    }
    const std::scoped_lock lock(state->mutex);
    state->done = true;
    state->changed.notify_all();
  }).detach();
  const auto start = std::chrono::steady_clock::now();
  std::unique_lock lock(state->mutex);
  while (!state->changed.wait_for(lock, std::chrono::milliseconds(5), [&] { return state->done; })) {
    lock.unlock();
    look();
    lock.lock();
    if (patience > std::chrono::nanoseconds::zero() && std::chrono::steady_clock::now() - start >= patience) {
      return state->done;
    }
  }
  return true;
}

/// The same where there is nothing to look at; false where there is no thread, too.
template <class Work>
bool run_bounded(std::chrono::nanoseconds patience, Work work) noexcept {
  try {
    return run_watched(patience, std::move(work), [] {});
  } catch (const std::system_error&) {
    return false;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

}  // namespace hfcomm::engines
