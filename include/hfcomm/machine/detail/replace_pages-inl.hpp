// SPDX-License-Identifier: MIT
#pragma once

#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <sstream>
#include <system_error>

#include <sys/mman.h>

#include <hfcomm/core/config.hpp>
#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/machine/replace_pages.hpp>
#include <hfcomm/machine/shared_segment.hpp>
#include <hfcomm/machine/text_file.hpp>

namespace hfcomm::rendezvous {

/// A line of /proc/self/maps: neighbouring pages of one kind.
struct mapped_area {
  [[gnu::cold]] explicit mapped_area(const std::string& line) {
    std::istringstream fields(line);
    std::string range;
    std::string offset;
    std::string device;
    fields >> range >> permissions >> offset >> device >> inode >> name;
    const char* const last = range.data() + range.size();
    const auto [dash, problem] = std::from_chars(range.data(), last, begin, 16);
    if (problem == std::errc() && dash != last) {
      std::from_chars(dash + 1, last, end, 16);
    }
  }

  /// Describes why its pages cannot be replaced; empty: they can.
  [[nodiscard]] std::string problem() const {
    if (permissions.size() != 4 || permissions[3] != 'p') {
      return detail::concat({"it is shared memory already, by an earlier share or from allocate (", name, ")"});
    }
    if (permissions.compare(0, 3, "rw-") != 0) {
      return permissions[1] == 'w' ? detail::concat({"its permissions are ", permissions}) : "it is read-only";
    }
    if (inode != "0") {
      return detail::concat({"it is the mapping of a file, as arrays with initialisers are (", name, ")"});
    }
    return name == "[stack]" ? "it is on the stack" : "";
  }

  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
  std::string permissions;
  std::string inode;
  std::string name;
};

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

HFCOMM_INLINE std::string replacement_problem(std::span<const std::byte> pages) {
  auto next = reinterpret_cast<std::uintptr_t>(pages.data());
  const std::uintptr_t end = next + pages.size();
  std::string problem;
  const int failure = text_file("/proc/self/maps").read_lines([&](const std::string& line) {
    const mapped_area area(line);
    if (area.end <= next) {
      return true;
    }
    if (area.begin > next) {
      return false;
    }
    problem = area.problem();
    next = area.end;
    return problem.empty() && next < end;
  });
  if (failure != 0) {
    return "/proc/self/maps, which tells what memory it is, cannot be read";
  }
  return problem.empty() && next < end ? "not all of it is mapped" : problem;
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
