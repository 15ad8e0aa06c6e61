// SPDX-License-Identifier: MIT
#include "ranks.hpp"

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <span>

#include <sys/mman.h>
#include <unistd.h>

namespace {

using namespace hfcomm;
using namespace multi_rank;

constexpr std::size_t one_piece = std::size_t{1} << 20;
constexpr std::size_t huge_count = (std::size_t{1} << 31) + one_piece;  // more than an int can count

/// Many bytes at consecutive addresses. All pieces but the last map the same memory, so that any machine can hold them.
class folded_memory {
 public:
  folded_memory() : file_(::memfd_create("hfcomm-test", 0)) {
    void* reserved = ::mmap(nullptr, huge_count, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (file_ < 0 || reserved == MAP_FAILED || ::ftruncate(file_, 2 * one_piece) != 0) {
      throw std::runtime_error("the machine gives no memory for the test");
    }
    data_ = static_cast<std::int8_t*>(reserved);
    for (std::size_t offset = 0; offset < huge_count; offset += one_piece) {
      const bool last = offset + one_piece == huge_count;
      if (::mmap(data_ + offset, one_piece, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file_,
                 last ? static_cast<off_t>(one_piece) : 0) == MAP_FAILED) {
        throw std::runtime_error("the machine does not map the test's memory");
      }
    }
  }
  folded_memory(const folded_memory&) = delete;
  folded_memory& operator=(const folded_memory&) = delete;
  ~folded_memory() {
    ::munmap(data_, huge_count);
    ::close(file_);
  }

  [[nodiscard]] std::span<std::int8_t> all() const { return {data_, huge_count}; }
  [[nodiscard]] std::span<std::int8_t> first_piece() const { return all().first(one_piece); }
  [[nodiscard]] std::span<std::int8_t> last_piece() const { return all().last(one_piece); }

  void fill(int salt) const {
    std::int8_t* const first = first_piece().data();
    std::int8_t* const last = last_piece().data();
    for (std::size_t i = 0; i < one_piece; ++i) {
      first[i] = static_cast<std::int8_t>((i * 31 + as_index(salt)) % 127);
      last[i] = static_cast<std::int8_t>((i * 17 + as_index(salt)) % 113);
    }
  }

 private:
  int file_;
  std::int8_t* data_ = nullptr;
};

bool same(std::span<const std::int8_t> left, std::span<const std::int8_t> right) {
  return std::memcmp(left.data(), right.data(), right.size()) == 0;
}

}  // namespace

TEST_CASE("large counts: more elements than an int can count are broadcast and sent") {
  if (under_thread_sanitizer) {
    std::puts("[hfcomm] skipped: large counts: the thread sanitizer itself needs 12 GB here");
    return;
  }
  folded_memory expected;
  expected.fill(1);
  run_noted(2, {}, [&](const process_group& world) {
    folded_memory mine;
    mine.fill(world.rank() == 0 ? 1 : 2);
    broadcast(mine.all(), 0, world);
    CHECK(same(mine.first_piece(), expected.first_piece()));
    CHECK(same(mine.last_piece(), expected.last_piece()));
    mine.fill(world.rank() == 1 ? 1 : 2);
    if (world.rank() == 1) {
      send(mine.all(), 0, world);
    } else {
      recv(mine.all(), 1, world);
    }
    CHECK(same(mine.first_piece(), expected.first_piece()));
    CHECK(same(mine.last_piece(), expected.last_piece()));
    check_usable(world);
  });
}
