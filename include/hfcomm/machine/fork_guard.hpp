// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <cstdint>

#include <pthread.h>

namespace hfcomm::rendezvous {

/// Counts the forks between the program's start and this process. What was made in another process (a group, a roster)
/// must not be used or signed out of here: the child of a rank is not that rank.
class fork_guard {
 public:
  fork_guard() noexcept : forks_before_(forks().load(std::memory_order_relaxed)) {}

  /// Whether this is still the process in which this object was made.
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
