// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

namespace hfcomm::engines {

/// Whether this process has left main. Libraries may be gone then whose functions destructors would call.
class process_end {
 public:
  static void watch() noexcept {
    static const int registered = std::atexit([] { flag().store(true); });
    (void)registered;
  }
  [[nodiscard]] static bool begun() noexcept { return flag().load(); }

 private:
  static std::atomic<bool>& flag() noexcept {
    static std::atomic<bool> raised{false};
    return raised;
  }
};

/// Runs `work` on a thread of its own and waits for it; false where it has not ended in time, or there is no thread: it
/// may go on then, so it must own what it uses. For calls into libraries that may never return.
template <class Work>
bool run_bounded(std::chrono::nanoseconds patience, Work work) noexcept {
  struct progress {
    std::mutex mutex;
    std::condition_variable changed;
    bool done = false;
  };
  try {
    auto state = std::make_shared<progress>();
    std::thread([state, work = std::move(work)]() mutable {
      work();
      const std::scoped_lock lock(state->mutex);
      state->done = true;
      state->changed.notify_all();
    }).detach();
    std::unique_lock lock(state->mutex);
    return state->changed.wait_for(lock, patience, [&] { return state->done; });
  } catch (const std::system_error&) {
    return false;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

}  // namespace hfcomm::engines
