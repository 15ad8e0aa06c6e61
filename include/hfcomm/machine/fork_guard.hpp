// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <cstdint>

#include <pthread.h>

namespace hfcomm::rendezvous {

/// Detects that an object has been copied into the child of a fork. A group or a roster must not be used there: the
/// child of a rank is not that rank.
class fork_guard {
 public:
  fork_guard() noexcept : forks_before_(forks().load(std::memory_order_relaxed)) {}

  /// Returns whether this is the process in which the object was made; false in the child of a fork.
  [[nodiscard]] bool in_creating_process() const noexcept {
    return forks_before_ == forks().load(std::memory_order_relaxed);
  }

 private:
  static std::atomic<std::uint32_t>& forks() noexcept {
    static std::atomic<std::uint32_t> count{0};
    static const int registered = ::pthread_atfork(nullptr, nullptr, [] { count.fetch_add(1); });
    (void)registered;
    return count;
  }

  std::uint32_t forks_before_;
};

}  // namespace hfcomm::rendezvous
