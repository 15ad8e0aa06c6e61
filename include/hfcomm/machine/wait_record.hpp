// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <hfcomm/core/std_algorithm.hpp>

namespace hfcomm::rendezvous {

/// The wait of one of a rank's threads, in shared memory: for the ranks that wait for this one. It is written again
/// and again while the wait lasts, so that nobody need clear it. Where several threads wait, the last writer counts.
class wait_record {
 public:
  /// Records that `thread` (see gettid) waits in `call` for the rank with index `awaited` in the roster.
  void write(std::uint32_t thread, int awaited, std::string_view call) noexcept {
    const auto length = std::min(call.size(), sizeof(call_) - 1);
    for (std::size_t letter = 0; letter < length; ++letter) {
      call_[letter].store(call[letter], std::memory_order_relaxed);
    }
    call_[length].store('\0', std::memory_order_relaxed);
    state_.store(std::uint64_t{thread} << 32 | static_cast<std::uint64_t>(awaited) << 16 | present());
  }

  /// Returns whether `thread` waits for the rank with this index.
  [[nodiscard, gnu::cold]] bool is_of(std::uint32_t thread, int awaited) const noexcept {
    const std::uint64_t state = state_.load();
    return is_new(state) && state >> 16 == (std::uint64_t{thread} << 16 | static_cast<std::uint64_t>(awaited));
  }
  /// Returns the call that waits; empty where none does.
  [[nodiscard, gnu::cold]] std::string call() const {
    char text[sizeof(call_)]{};
    for (std::size_t letter = 0; letter < sizeof(call_) && is_new(state_.load()); ++letter) {
      text[letter] = call_[letter].load(std::memory_order_relaxed);
    }
    return text;
  }

 private:
  /// Returns the time in eighths of a second, without the high bits.
  [[nodiscard]] static std::uint16_t present() noexcept {
    return static_cast<std::uint16_t>(std::chrono::steady_clock::now().time_since_epoch().count() >> 27);
  }
  [[nodiscard]] static bool is_new(std::uint64_t state) noexcept {
    return state != 0 && static_cast<std::uint16_t>(present() - static_cast<std::uint16_t>(state)) < 8;
  }

  std::atomic<std::uint64_t> state_{0};  // the thread, the awaited rank, and when that was written; 0: never
  std::atomic<char> call_[176]{};
};

}  // namespace hfcomm::rendezvous
