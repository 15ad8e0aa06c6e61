// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <hfcomm/core/config.hpp>

namespace hfcomm::rendezvous {

/// Detects that an object has been copied into the child of a fork. A group or a roster must not be used there: the
/// child of a rank is not that rank.
///
/// The number of this process lies in a page that the kernel fills with zeros in a child, whichever way it is forked.
/// The child then takes the next number.
class fork_guard {
 public:
  fork_guard() noexcept : creator_(number_of_process()) {}

  /// Returns whether this is the process in which the object was made; false in the child of a fork.
  [[nodiscard]] bool in_creating_process() const noexcept { return creator_ == number_of_process(); }

 private:
  using number = std::atomic<std::uint32_t>;

  HFCOMM_PROCESS_STATE static std::uint32_t number_of_process() noexcept {
    number& mine = wiped_on_fork();
    std::uint32_t value = mine.load(std::memory_order_relaxed);
    if (value == 0) [[unlikely]] {
      static number last{0};
      const std::uint32_t next = last.fetch_add(1) + 1;
      value = mine.compare_exchange_strong(value, next) ? next : value;  // another thread may be faster
    }
    return value;
  }

  HFCOMM_PROCESS_STATE static number& wiped_on_fork() noexcept {
    static number& shared = *make_page();
    return shared;
  }

  /// Returns a number that is zero here and in each child. Where the system cannot wipe a page (before Linux 4.14), a
  /// handler of fork() does, which a child made by the bare system call does not run.
  static number* make_page() noexcept {
    const auto bytes = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    void* const page = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page != MAP_FAILED && ::madvise(page, bytes, MADV_WIPEONFORK) == 0) {
      return ::new (page) number{0};
    }
    static number fallback{0};
    ::pthread_atfork(nullptr, nullptr, [] { fallback.store(0); });
    return &fallback;
  }

  std::uint32_t creator_;
};

}  // namespace hfcomm::rendezvous
