// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <unistd.h>

#include <hfcomm/core/std_algorithm.hpp>

namespace hfcomm::rendezvous {

/// The number of the calling thread, which is not 0. In the child of a fork it may be that of the parent's thread.
[[gnu::always_inline]] inline std::uint32_t this_thread() noexcept {
  static thread_local std::uint32_t number = 0;
  if (number == 0) {
    number = static_cast<std::uint32_t>(::gettid());
  }
  return number;
}

/// The wait of one of a rank's threads, in shared memory: for the ranks that wait for this one. It is written again
/// and again while the wait lasts. Where several threads wait, the last writer counts.
class wait_record {
 public:
  /// Records that `thread` waits in `call` for the rank with index `awaited` in the roster, whose thread `theirs` did
  /// the last operation there; 0: none has.
  void write(std::uint32_t thread, int awaited, std::uint32_t theirs, std::string_view call) noexcept {
    const auto length = std::min(call.size(), sizeof(call_) - 1);
    for (std::size_t letter = 0; letter < length; ++letter) {
      call_[letter].store(call[letter], std::memory_order_relaxed);
    }
    call_[length].store('\0', std::memory_order_relaxed);
    theirs_.store(theirs);
    state_.store(std::uint64_t{thread} << 32 | static_cast<std::uint64_t>(awaited) << 16 | age_of(0));
  }

  /// Records that no thread waits.
  void clear() noexcept { state_.store(0); }

  /// Returns whether `thread` waits for the rank with this index, where that rank's thread `theirs` did the last
  /// operation.
  [[nodiscard, gnu::cold]] bool is_of(std::uint32_t thread, int awaited, std::uint32_t theirs) const noexcept {
    const std::uint64_t state = state_.load();
    return state >> 16 == (std::uint64_t{thread} << 16 | static_cast<std::uint64_t>(awaited)) && age_of(state) < 8 &&
           theirs_.load() == theirs;
  }
  /// Returns the call that waits; empty where none does.
  [[nodiscard, gnu::cold]] std::string call() const {
    const std::uint64_t state = state_.load();
    char text[sizeof(call_)]{};
    for (std::size_t letter = 0; letter < sizeof(call_) && state >> 32 != 0 && age_of(state) < 8; ++letter) {
      text[letter] = call_[letter].load(std::memory_order_relaxed);
    }
    return text;
  }

 private:
  /// Returns how long ago a state was written, in eighths of a second, without the high bits.
  [[nodiscard]] static std::uint16_t age_of(std::uint64_t state) noexcept {
    const auto now = std::chrono::steady_clock::now().time_since_epoch().count() >> 27;
    return static_cast<std::uint16_t>(static_cast<std::uint64_t>(now) - state);
  }

  std::atomic<std::uint64_t> state_{0};   // the thread, the awaited rank, and when that was written; 0: no wait
  std::atomic<std::uint32_t> theirs_{0};  // see write
  std::atomic<char> call_[172]{};
};

}  // namespace hfcomm::rendezvous
