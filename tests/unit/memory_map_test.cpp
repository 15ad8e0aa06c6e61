// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <cstddef>
#include <span>
#include <string>

#include <sys/mman.h>
#include <unistd.h>

#include <hfcomm/machine/memory_map.hpp>

namespace {

using hfcomm::rendezvous::memory_map;

/// Pages of one kind, which are unmapped in the end.
class pages {
 public:
  pages(std::size_t count, int protection, int flags, int file = -1)
      : bytes_(count * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE))),
        begin_(::mmap(nullptr, bytes_, protection, flags, file, 0)) {
    REQUIRE(begin_ != MAP_FAILED);
  }
  pages(const pages&) = delete;
  pages& operator=(const pages&) = delete;
  ~pages() { ::munmap(begin_, bytes_); }

  [[nodiscard]] std::span<const std::byte> span() const { return {static_cast<const std::byte*>(begin_), bytes_}; }

 private:
  std::size_t bytes_;
  void* begin_;
};

/// Checks the kernel's answer for one area, where it can give one, and what its text of all areas says.
void check(std::span<const std::byte> range, const std::string& problem) {
  memory_map asked;
  CHECK(asked.replacement_problem(range).substr(0, problem.size()) == problem);
  memory_map read;
  read.read_all();
  CHECK(read.replacement_problem(range) == asked.replacement_problem(range));
  if (problem.empty()) {
    CHECK(read.replacement_problem(range).empty());
  }
}

}  // namespace

TEST_CASE("memory_map: which memory can be replaced, and why other memory cannot") {
  constexpr int both = PROT_READ | PROT_WRITE;
  constexpr int own = MAP_PRIVATE | MAP_ANONYMOUS;
  const pages ordinary(3, both, own);
  check(ordinary.span(), "");
  check(pages(2, PROT_READ, own).span(), "it is read-only");
  check(pages(2, both | PROT_EXEC, own).span(), "its permissions are rwxp");
  check(pages(2, both, MAP_SHARED | MAP_ANONYMOUS).span(), "it is shared memory already");
  const int file = ::memfd_create("memory_map_test", 0);
  REQUIRE(::ftruncate(file, 1 << 20) == 0);
  check(pages(2, both, MAP_PRIVATE, file).span(), "it is the mapping of a file");
  ::close(file);
}

TEST_CASE("memory_map: a range with a hole, and one of several areas") {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const pages three(3, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS);
  auto* const middle = const_cast<std::byte*>(three.span().data()) + page;
  ::mprotect(middle, page, PROT_READ);
  check(three.span(), "it is read-only");
  check(three.span().first(page), "");
  ::munmap(middle, page);
  check(three.span(), "not all of it is mapped");
}
