// SPDX-License-Identifier: MIT
#include "ranks.hpp"

#include <algorithm>
#include <cstdint>
#include <span>

namespace {

using namespace hfcomm;
using namespace multi_rank;

int sum_of_ranks(const process_group& group) { return group.size() * (group.size() - 1) / 2; }

TEST_CASE("reduce: the root's buffer gets the result, the others keep theirs") {
  at_every_size([](const process_group& world) {
    for (const std::size_t count : each_of(0, 1, 3, 4096, 4097, 70'000)) {
      for (const int root : {0, world.size() - 1}) {
        std::vector<float> data(count, static_cast<float>(world.rank()));
        reduce(data, root);
        const auto expected = static_cast<float>(world.rank() == root ? sum_of_ranks(world) : world.rank());
        CHECK((data == std::vector<float>(count, expected)));
      }
    }
  });
}

// Out of place with its namespace: std::reduce takes two vectors for iterators, wherever <numeric> is included.
TEST_CASE("reduce: out of place, only the root needs an output") {
  at_every_size([](const process_group& world) {
    for (const std::size_t count : each_of(0, 2, 2048, 2049, 40'000)) {
      const int root = world.size() / 2;
      const std::vector<std::int64_t> in(count, world.rank());
      std::vector<std::int64_t> out(world.rank() == root ? count : 0);
      hfcomm::reduce(in, out, root, reduce_op::max);
      CHECK((in == std::vector<std::int64_t>(count, world.rank())));
      CHECK((out == std::vector<std::int64_t>(world.rank() == root ? count : 0, world.size() - 1)));
    }
  });
}

TEST_CASE("reduce: an output on another rank than the root is unchanged, whatever its size") {
  at_every_size([](const process_group& world) {
    for (const std::size_t count : each_of(3, 100'000)) {
      const std::vector<int> in(count, 1);
      std::vector<int> out(world.rank() == 0 ? count : 5, -7);
      hfcomm::reduce(in, out, 0);
      CHECK((out == (world.rank() == 0 ? std::vector<int>(count, world.size()) : std::vector<int>(5, -7))));
    }
  });
}

TEST_CASE("reduce: it reduces one number from each rank") {
  at_every_size([](const process_group& world) {
    for (int root = 0; root < world.size(); ++root) {
      const auto sum = reduce(world.rank(), root);
      CHECK(sum.has_value() == (world.rank() == root));
      CHECK((!sum || *sum == sum_of_ranks(world)));
      const auto mean = reduce(static_cast<double>(world.rank()), root, reduce_op::average);
      CHECK((!mean || *mean == (world.size() - 1) / 2.0));
    }
  });
}

TEST_CASE("reduce: a callable folds objects in rank order") {
  at_every_size([](const process_group& world) {
    const auto concatenate = [](const std::string& left, const std::string& right) { return left + right; };
    const auto text = reduce(std::to_string(world.rank()), world.size() - 1, concatenate);
    CHECK(text.has_value() == (world.rank() == world.size() - 1));
    CHECK((!text || *text == std::string("01234567").substr(0, as_index(world.size()))));
    const auto same_type = [](int left, int right) { return left * 10 + right; };
    const auto digits = reduce(1, 0, same_type);
    CHECK((!digits || std::to_string(*digits) == std::string(as_index(world.size()), '1')));
  });
}

TEST_CASE("reduce: a callable's exception is thrown on the root, and the group stays usable") {
  at_every_size(
      [](const process_group& world) {
        const auto refuse = [](int, int) -> int { throw std::domain_error("cannot add"); };
        const auto call = [&] { return reduce(1, 0, refuse); };
        if (world.rank() == 0) {
          CHECK(error_of<std::domain_error>(call).what() == std::string("cannot add"));
        } else {
          CHECK_FALSE(call().has_value());
        }
        check_usable(world);
      },
      2);
}

TEST_CASE("reduce: an output of the wrong size on the root is an error on every rank") {
  at_every_size([](const process_group& world) {
    const std::vector<float> in(10);
    std::vector<float> out(9);
    const auto call = [&] { hfcomm::reduce(in, out, world.size() - 1); };
    if (world.rank() == world.size() - 1) {
      CHECK_CONTAINS(error_of<usage_error>(call).what(), "9 elements");
    } else {
      const auto problem = error_of<peer_error>(call);
      CHECK(problem.peer() == world.size() - 1);
      CHECK_CONTAINS(problem.what(), "9 elements");
    }
    check_usable(world);
  });
}

TEST_CASE("reduce: an average of integers is an error, also in a group of one") {
  at_every_size([](const process_group& world) {
    std::vector<int> data(3, world.rank());
    const auto problem = error_of<usage_error>([&] { reduce(data, 0, reduce_op{reduce_op::average}); });
    CHECK_CONTAINS(problem.what(), "average of int32");
    CHECK((data == std::vector<int>(3, world.rank())));
    check_usable(world);
  });
  CHECK_CONTAINS(error_of<usage_error>([] { (void)reduce(1, 0, reduce_op{reduce_op::average}); }).what(),
                 "average of int32");
}

TEST_CASE("reduce: the root is a rank of the group") {
  at_every_size([](const process_group& world) {
    const auto turned = world.split(0, -world.rank());
    CHECK(reduce(1, 0, reduce_op::sum, turned).has_value() == (world.rank() == world.size() - 1));
  });
}

TEST_CASE("reduce: without init the result is the value itself") {
  CHECK(reduce(2.5, 0, reduce_op::average) == 2.5);
  std::array data{1, 2};
  reduce(data, 0);
  CHECK((data == std::array{1, 2}));
  CHECK_CONTAINS(error_of<usage_error>([&] { reduce(data, 1); }).what(), "root 1");
}

TEST_CASE("reduce: a premultiplied sum takes each rank's own factor") {
  at_every_size([](const process_group& world) {
    for (const std::size_t count : each_of(1, 20, 5000, 70'000)) {
      const int root = world.size() - 1;
      std::vector<float> data(count, 2.0F);
      reduce(data, root, reduce_op::premultiplied_sum(world.rank() + 1));
      const int factors = world.size() * (world.size() + 1) / 2;
      CHECK((data == std::vector<float>(count, world.rank() == root ? 2.0F * static_cast<float>(factors) : 2.0F)));
    }
  });
}

}  // namespace
