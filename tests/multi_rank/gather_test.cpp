// SPDX-License-Identifier: MIT
#include "ranks.hpp"

#include <cstdint>
#include <span>

namespace {

using namespace hfcomm;
using namespace multi_rank;

TEST_CASE("gather: the root gets every rank's object, the others nothing") {
  at_every_size([](const process_group& world) {
    for (int root = 0; root < world.size(); ++root) {
      for (const std::size_t size : each_of(0, 5, 300'000)) {
        const auto texts = gather(text_of(world.rank(), size + as_index(world.rank())), root);
        if (world.rank() != root) {
          CHECK(texts.empty());
          continue;
        }
        REQUIRE(texts.size() == as_index(world.size()));
        for (int rank = 0; rank < world.size(); ++rank) {
          CHECK(texts[as_index(rank)] == text_of(rank, size + as_index(rank)));
        }
      }
    }
  });
}

TEST_CASE("gather: the root defaults to 0") {
  at_every_size([](const process_group& world) {
    const auto numbers = gather(world.rank());
    CHECK(numbers.size() == (world.rank() == 0 ? as_index(world.size()) : 0));
    CHECK((numbers.empty() || numbers.back() == world.size() - 1));
  });
}

TEST_CASE("gather: buffers need an output on the root only") {
  at_every_size([](const process_group& world) {
    for (const std::size_t count : each_of(0, 1, 10, 11, 32'768, 32'769, 70'001)) {
      const int root = static_cast<int>(count) % world.size();
      const std::vector<std::int64_t> in(count, world.rank() + 5);
      std::vector<std::int64_t> out(world.rank() == root ? count * as_index(world.size()) : 0);
      gather(in, out, root);
      std::vector<std::int64_t> expected;
      for (int rank = 0; rank < world.size() && world.rank() == root; ++rank) {
        expected.insert(expected.end(), count, rank + 5);
      }
      CHECK((out == expected));
    }
  });
}

TEST_CASE("gather: an output on another rank than the root is unchanged") {
  at_every_size([](const process_group& world) {
    std::vector<int> out(as_index(world.size()), -7);
    gather(std::array{world.rank()}, out, world.size() - 1);
    if (world.rank() == world.size() - 1) {
      CHECK(out.front() == 0);
      CHECK(out.back() == world.size() - 1);
    } else {
      CHECK((out == std::vector<int>(as_index(world.size()), -7)));
    }
  });
}

TEST_CASE("gather: an output of the wrong size on the root is an error on every rank") {
  at_every_size([](const process_group& world) {
    const int root = world.size() / 2;
    std::vector<int> out(as_index(world.size()) + 1);
    const auto call = [&] { gather(std::array{1}, out, root); };
    if (world.rank() == root) {
      CHECK_CONTAINS(error_of<usage_error>(call).what(), std::to_string(out.size()) + " elements");
    } else {
      const auto problem = error_of<peer_error>(call);
      CHECK(problem.peer() == root);
      CHECK_CONTAINS(problem.what(), std::to_string(out.size()) + " elements");
    }
    check_usable(world);
  });
}

TEST_CASE("gather: the root is a rank of the group") {
  at_every_size([](const process_group& world) {
    const auto turned = world.split(0, -world.rank());
    const auto ranks = gather(world.rank(), 0, turned);
    CHECK(ranks.empty() == (world.rank() != world.size() - 1));
    CHECK((ranks.empty() || ranks.front() == world.size() - 1));
  });
}

TEST_CASE("gather: without init the result is the one object") {
  CHECK((gather(std::string("x")) == std::vector<std::string>{"x"}));
  CHECK_CONTAINS(error_of<usage_error>([] { (void)gather(1, -1); }).what(), "root -1");
}

}  // namespace
