// SPDX-License-Identifier: MIT
#pragma once

#include <cerrno>
#include <cstring>

#include <sys/mman.h>

#include <hfcomm/core/config.hpp>
#include <hfcomm/machine/replace_pages.hpp>
#include <hfcomm/machine/shared_segment.hpp>

namespace hfcomm::rendezvous {

/// Copies `pages` to the equally long mapping `fresh` and moves that one over them.
inline int move_over(void* fresh, std::span<std::byte> pages) noexcept {
  if (fresh == MAP_FAILED) {
    return errno;
  }
  ::madvise(fresh, pages.size(), shared_segment::populate_write);  // page faults at once, if the kernel knows it
  std::memcpy(fresh, pages.data(), pages.size());
  if (::mremap(fresh, pages.size(), pages.size(), MREMAP_MAYMOVE | MREMAP_FIXED, pages.data()) == MAP_FAILED) {
    const int problem = errno;
    ::munmap(fresh, pages.size());
    return problem;
  }
  return 0;
}

HFCOMM_INLINE int replace_by_shared(std::span<std::byte> pages, std::byte* shared) noexcept {
  // Addresses from mmap, because the thread sanitizer takes those that mremap finds for memory of other threads.
  void* fresh = ::mmap(nullptr, pages.size(), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (fresh != MAP_FAILED) {
    // The length 0 leaves the first mapping where it is.
    fresh = ::mremap(shared, 0, pages.size(), MREMAP_MAYMOVE | MREMAP_FIXED, fresh);
  }
  if (fresh != MAP_FAILED) {
    ::madvise(fresh, pages.size(), MADV_DODUMP);
  }
  return move_over(fresh, pages);
}

HFCOMM_INLINE int replace_by_private(std::span<std::byte> pages) noexcept {
  return move_over(::mmap(nullptr, pages.size(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), pages);
}

}  // namespace hfcomm::rendezvous
