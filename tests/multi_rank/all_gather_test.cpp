// SPDX-License-Identifier: MIT
#include "ranks.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>

namespace {

using namespace hfcomm;
using namespace multi_rank;

TEST_CASE("all_gather: every rank gets all objects in rank order") {
  at_every_size([](const process_group& world) {
    const auto numbers = all_gather(world.rank() * 10);
    const auto texts = all_gather(text_of(world.rank(), 50));
    const auto flags = all_gather(world.rank() % 2 == 0);
    REQUIRE(numbers.size() == as_index(world.size()));
    REQUIRE(texts.size() == as_index(world.size()));
    REQUIRE(flags.size() == as_index(world.size()));
    for (int rank = 0; rank < world.size(); ++rank) {
      CHECK(numbers[as_index(rank)] == rank * 10);
      CHECK(texts[as_index(rank)] == text_of(rank, 50));
      CHECK(flags[as_index(rank)] == (rank % 2 == 0));
    }
  });
}

TEST_CASE("all_gather: objects may have different sizes, one of them may be empty") {
  at_every_size([](const process_group& world) {
    for (const std::size_t step : each_of(1, 40, 100'000)) {
      const auto texts = all_gather(text_of(world.rank(), step * as_index(world.rank())));
      for (int rank = 0; rank < world.size(); ++rank) {
        CHECK(texts[as_index(rank)] == text_of(rank, step * as_index(rank)));
      }
    }
  });
}

TEST_CASE("all_gather: it gathers buffers of equal length") {
  at_every_size([](const process_group& world) {
    for (const std::size_t count : each_of(0, 1, 3, 40, 41, 131'072, 131'073, 300'001)) {
      std::vector<std::int16_t> in(count, static_cast<std::int16_t>(world.rank() + 1));
      std::vector<std::int16_t> out(count * as_index(world.size()), -1);
      all_gather(in, out);
      std::vector<std::int16_t> expected;
      for (int rank = 0; rank < world.size(); ++rank) {
        expected.insert(expected.end(), count, static_cast<std::int16_t>(rank + 1));
      }
      CHECK((out == expected));
      CHECK((in == std::vector<std::int16_t>(count, static_cast<std::int16_t>(world.rank() + 1))));
    }
  });
}

TEST_CASE("all_gather: the input may be the rank's own part of the output") {
  at_every_size([](const process_group& world) {
    for (const std::size_t count : each_of(2, 70'000)) {
      std::vector<float> table(count * as_index(world.size()), -1.0F);
      const auto mine = std::span(table).subspan(count * as_index(world.rank()), count);
      std::fill(mine.begin(), mine.end(), static_cast<float>(world.rank()));
      all_gather(mine, std::span(table));
      for (int rank = 0; rank < world.size(); ++rank) {
        CHECK(table[count * as_index(rank)] == static_cast<float>(rank));
        CHECK(table[count * as_index(rank + 1) - 1] == static_cast<float>(rank));
      }
    }
  });
}

TEST_CASE("all_gather: an output of the wrong size is an error on every rank") {
  at_every_size([](const process_group& world) {
    const int wrong = world.size() - 1;
    std::vector<int> in(4);
    std::vector<int> out(4 * as_index(world.size()) - (world.rank() == wrong ? 1 : 0));
    line_note note;
    if (world.rank() == wrong) {
      const auto problem = error_of<usage_error>([&] { all_gather(in, out, note(world)); });
      CHECK_CONTAINS(problem.what(), note.text());
      CHECK_CONTAINS(problem.what(), std::to_string(out.size()) + " elements");
    } else {
      const auto problem = error_of<peer_error>([&] { all_gather(in, out, note(world)); });
      CHECK(problem.peer() == wrong);
      CHECK_FALSE(problem.fatal());
      CHECK_CONTAINS(problem.what(), std::to_string(out.size() - 1) + " elements");
    }
    check_usable(world);
  });
}

TEST_CASE("all_gather: in a group it gathers from that group's ranks") {
  at_every_size([](const process_group& world) {
    const auto half = world.split(world.rank() % 2, -world.rank());
    const auto ranks = all_gather(world.rank(), half);
    REQUIRE(ranks.size() == as_index(half.size()));
    for (std::size_t index = 0; index < ranks.size(); ++index) {
      CHECK(ranks[index] % 2 == world.rank() % 2);
      CHECK((index == 0 || ranks[index] < ranks[index - 1]));
    }
    CHECK(ranks[as_index(half.rank())] == world.rank());
  });
}

TEST_CASE("all_gather: without init the result is the one object") {
  CHECK((all_gather(std::string("x")) == std::vector<std::string>{"x"}));
  std::array<int, 2> out{};
  all_gather(std::array{3, 4}, out);
  CHECK((out == std::array{3, 4}));
}

TEST_CASE("all_gather: the input may be const, a temporary, or the same object on all ranks") {
  static const std::string shared = text_of(0, 300'000);
  at_every_size([](const process_group& world) {
    for (const auto& text : all_gather(shared)) {
      CHECK((text == shared));
    }
    std::vector<int> out(as_index(world.size()) * 2);
    all_gather(std::array{1, 2}, std::span(out));
    CHECK(out.back() == 2);
    const auto options = all_gather(world.rank() == 0 ? std::nullopt : std::optional<int>(world.rank()));
    CHECK_FALSE(options.front().has_value());
    CHECK((world.size() == 1 || options.back() == world.size() - 1));
  });
}

}  // namespace
