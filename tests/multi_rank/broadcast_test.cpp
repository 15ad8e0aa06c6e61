// SPDX-License-Identifier: MIT
#include "ranks.hpp"

#include <cstdint>
#include <map>
#include <numeric>
#include <span>

#include <hfcomm/group/detail/group_state.hpp>

namespace {

using namespace hfcomm;
using namespace multi_rank;

TEST_CASE("broadcast: every rank gets the root's object") {
  at_every_size([](const process_group& world) {
    for (int root = 0; root < world.size(); ++root) {
      int number = world.rank();
      broadcast(number, root);
      CHECK(number == root);

      // Smaller or larger before: it is replaced either way.
      std::string text = text_of(world.rank(), as_index(world.rank()) * 100);
      broadcast(text, root);
      CHECK(text == text_of(root, as_index(root) * 100));

      std::map<std::string, std::vector<double>> nested{{"rank", {1.0 * world.rank()}}};
      nested[std::to_string(world.rank())];
      broadcast(nested, root, world);
      CHECK(nested == std::map<std::string, std::vector<double>>{{"rank", {1.0 * root}}, {std::to_string(root), {}}});
    }
  });
}

TEST_CASE("broadcast: the root defaults to 0") {
  at_every_size([](const process_group& world) {
    std::string text = world.rank() == 0 ? "zero" : "";
    broadcast(text);
    CHECK(text == "zero");
  });
}

TEST_CASE("broadcast: a vector is an object and takes the root's size") {
  at_every_size([](const process_group& world) {
    const int root = world.size() - 1;
    std::vector<float> values(world.rank() == root ? 1000 : 3, static_cast<float>(world.rank()));
    broadcast(values, root);
    CHECK((values == std::vector<float>(1000, static_cast<float>(root))));
    values.resize(world.rank() == root ? 0 : 7);
    broadcast(values, root);
    CHECK(values.empty());
  });
}

TEST_CASE("broadcast: a span is a buffer and is filled in place") {
  at_every_size([](const process_group& world) {
    for (const std::size_t count : each_of(0, 1, 3, 20, 21, 65'536, 65'537, 200'003)) {
      const int root = static_cast<int>(count) % world.size();
      std::vector<std::int32_t> values(count, -1);
      if (world.rank() == root) {
        std::iota(values.begin(), values.end(), static_cast<std::int32_t>(count));
      }
      const auto* place = values.data();
      broadcast(std::span(values), root);
      CHECK(values.data() == place);
      std::vector<std::int32_t> expected(count);
      std::iota(expected.begin(), expected.end(), static_cast<std::int32_t>(count));
      CHECK((values == expected));
    }
  });
}

TEST_CASE("broadcast: part of an array is filled and nothing around it") {
  at_every_size([](const process_group& world) {
    std::array<double, 5> values;
    values.fill(world.rank());
    std::span<double> middle = std::span(values).subspan(1, 3);
    broadcast(middle, world.size() / 2);
    const double own = world.rank();
    const double root = world.size() / 2;
    CHECK((values == std::array{own, root, root, root, own}));
  });
}

TEST_CASE("broadcast: the root is a rank of the group") {
  at_every_size([](const process_group& world) {
    // Reverse order: the group's rank 0 is the world's last.
    const auto turned = world.split(0, -world.rank());
    int from = world.rank();
    broadcast(from, 0, turned);
    CHECK(from == world.size() - 1);
    std::array<int, 1> view{world.rank()};
    broadcast(std::span(view), turned.size() - 1, turned);
    CHECK(view[0] == 0);
  });
}

TEST_CASE("broadcast: memory for encoding a large object is freed") {
  run_noted(2, {}, [](const process_group& world) {
    const auto& objects = hfcomm::detail::group_access::state(world).objects();
    std::string text(40 << 20, world.rank() == 0 ? 'x' : ' ');
    broadcast(text);
    CHECK(text == std::string(40 << 20, 'x'));
    CHECK(objects.capacity() == 0);
    text.resize(1000);
    broadcast(text);
    CHECK(text == std::string(1000, 'x'));
    CHECK(objects.capacity() == 0);  // encoded directly in memory that the others read
    text.resize(1 << 20);
    broadcast(text);
    barrier();
    CHECK((objects.capacity() > 0) == (world.rank() == 0));  // a small buffer is kept for the next operation
  });
}

TEST_CASE("broadcast: without init the value is unchanged") {
  std::string text = "as it was";
  broadcast(text);
  CHECK(text == "as it was");
  std::array numbers{1, 2};
  broadcast(std::span(numbers), 0);
  CHECK((numbers == std::array{1, 2}));
  const auto problem = error_of<usage_error>([&] { broadcast(text, 1); });
  CHECK_CONTAINS(problem.what(), "root 1");
  broadcast(text);
}

}  // namespace
