// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include <hfcomm/engine/hierarchical/cell_batch.hpp>

namespace {

using namespace hfcomm::engines;

cell_copy cell_of(std::uint64_t step) {
  cell_copy cell;
  cell.step = step;
  cell.tag = step * 7;
  return cell;
}

struct read_batch {
  std::vector<int> ranks;
  std::vector<std::uint64_t> steps;
  std::array<std::byte, 1024> slot{};
  bool is_right = false;

  explicit read_batch(const frame& what) {
    is_right = cell_batch::read(
        what,
        [&](int, std::uint64_t, std::size_t offset, std::size_t bytes) {
          return offset + bytes <= slot.size() ? slot.data() + offset : nullptr;
        },
        [&](int rank, const cell_copy& cell) {
          ranks.push_back(rank);
          steps.push_back(cell.step);
        });
  }
  [[nodiscard]] std::string text(std::size_t offset, std::size_t bytes) const {
    return {reinterpret_cast<const char*>(slot.data()) + offset, bytes};
  }
};

constexpr std::string_view written = "the elements of a rank, and those of another one";

}  // namespace

TEST_CASE("cell batch: cells and the parts of their slots come back, in order") {
  const auto* const slot = reinterpret_cast<const std::byte*>(written.data());
  const std::array<layout::slot_range, 2> parts{{{.offset = 4, .bytes = 8, .reader = -1},  //
                                                 {.offset = 25, .bytes = 9, .reader = 3}}};
  cell_batch batch;
  CHECK(batch.is_empty());
  REQUIRE(batch.add(2, cell_of(10), slot, parts));
  REQUIRE(batch.add(5, cell_of(11), slot, {}));
  frame what;
  batch.move_to(what);
  CHECK(batch.is_empty());

  const read_batch back(what);
  CHECK(back.is_right);
  CHECK(back.ranks == std::vector{2, 5});
  CHECK(back.steps == std::vector<std::uint64_t>{10, 11});
  CHECK(back.text(4, 8) == written.substr(4, 8));
  CHECK(back.text(25, 9) == written.substr(25, 9));
  CHECK(back.text(12, 1) == std::string(1, '\0'));
}

TEST_CASE("cell batch: one without room takes no more until it is sent") {
  cell_batch batch;
  int added = 0;
  while (batch.add(added, cell_of(1), nullptr, {})) {
    ++added;
  }
  CHECK(added >= 4);
  frame what;
  batch.move_to(what);
  CHECK(read_batch(what).ranks.size() == static_cast<std::size_t>(added));
  CHECK(batch.add(0, cell_of(2), nullptr, {}));
}

TEST_CASE("cell batch: an empty one has room for the most parts") {
  const std::vector<std::byte> slot(cell_batch::most_part_bytes);
  std::vector<layout::slot_range> parts;
  const auto each = static_cast<std::uint32_t>(cell_batch::most_part_bytes / cell_batch::most_parts);
  for (std::uint32_t index = 0; index < cell_batch::most_parts; ++index) {
    parts.push_back({.offset = index * each, .bytes = each - index % 2, .reader = -1});
  }
  cell_batch batch;
  CHECK(batch.add(0, cell_of(1), slot.data(), parts));
}

TEST_CASE("cell batch: bytes that are none write nothing outside the slot") {
  std::mt19937 random(1);  // NOLINT(*msc51-cpp): the same bytes in each run
  int refused = 0;
  for (int turn = 0; turn < 20'000; ++turn) {
    frame what;
    what.value = static_cast<std::uint32_t>(random() % 700);
    for (std::byte& one : what.body) {
      one = static_cast<std::byte>(random() % 4 == 0 ? random() : 0);
    }
    refused += read_batch(what).is_right ? 0 : 1;
  }
  CHECK(refused > 10'000);
}
