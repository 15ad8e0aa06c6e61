// SPDX-License-Identifier: MIT
#include "ranks.hpp"

#include <cstdint>
#include <map>
#include <unordered_map>

namespace {

using namespace hfcomm;
using namespace multi_rank;

using losses = std::map<std::string, double>;

TEST_CASE("reduce_dict: the root gets the averages, the others keep their own values") {
  at_every_size([](const process_group& world) {
    const losses mine{{"loss", world.rank()}, {"accuracy", 10.0 + world.rank()}, {"constant", 1.5}};
    for (int root = 0; root < world.size(); ++root) {
      const auto reduced = reduce_dict(mine, reduce_op::average, root);
      const double mean = (world.size() - 1) / 2.0;
      const losses expected{{"loss", mean}, {"accuracy", 10 + mean}, {"constant", 1.5}};
      CHECK((reduced == (world.rank() == root ? expected : mine)));
    }
    CHECK(reduce_dict(mine).at("loss") == (world.rank() == 0 ? (world.size() - 1) / 2.0 : mine.at("loss")));
  });
}

TEST_CASE("all_reduce_dict: every rank gets the result, for every operation") {
  at_every_size([](const process_group& world) {
    const int n = world.size();
    const losses mine{{"a", world.rank()}, {"b", -world.rank()}};
    const double sum = n * (n - 1) / 2.0;
    CHECK((all_reduce_dict(mine) == losses{{"a", sum / n}, {"b", -sum / n}}));
    CHECK((all_reduce_dict(mine, reduce_op::sum) == losses{{"a", sum}, {"b", -sum}}));
    CHECK((all_reduce_dict(mine, reduce_op::max) == losses{{"a", n - 1.0}, {"b", 0}}));
    CHECK((all_reduce_dict(mine, reduce_op::min) == losses{{"a", 0}, {"b", 1.0 - n}}));
    CHECK((all_reduce_dict(mine, reduce_op::product) == losses{{"a", n == 1 ? mine.at("a") : 0}, {"b", 0}}));
    CHECK((mine == losses{{"a", world.rank()}, {"b", -world.rank()}}));
  });
}

TEST_CASE("all_reduce_dict: it takes any sortable key, any number and any map") {
  at_every_size([](const process_group& world) {
    const int n = world.size();
    const std::unordered_map<int, float> hashed{{7, 1.0F}, {-3, static_cast<float>(world.rank())}, {100, 0.5F}};
    CHECK((all_reduce_dict(hashed, reduce_op::sum) ==
           std::unordered_map<int, float>{{7, 1.0F * static_cast<float>(n)},
                                          {-3, static_cast<float>(n * (n - 1) / 2)},
                                          {100, 0.5F * static_cast<float>(n)}}));
    const std::map<std::pair<int, std::string>, std::int64_t> pairs{{{1, "x"}, 1}, {{1, "y"}, world.rank()}};
    CHECK(all_reduce_dict(pairs, reduce_op::sum).at({1, "y"}) == n * (n - 1) / 2);
    std::map<std::string, float16> halves;
    halves.emplace("h", float16(2.0F));
    CHECK(static_cast<float>(all_reduce_dict(halves).at("h")) == 2.0F);
    const std::map<char, std::uint8_t, std::greater<>> downwards{{'a', std::uint8_t{1}}, {'b', std::uint8_t{2}}};
    CHECK(all_reduce_dict(downwards, reduce_op::sum).at('b') == 2 * n);
    CHECK(all_reduce_dict(std::map<std::string, std::int8_t>{{"", std::int8_t{1}}}, reduce_op::sum).at("") == n);
  });
}

TEST_CASE("all_reduce_dict: a map may have no key, one, or more than one chunk") {
  at_every_size([](const process_group& world) {
    for (const std::size_t count : each_of(0, 1, 2, 3, 1000, 12'000)) {
      std::map<std::string, float> mine;
      for (std::size_t i = 0; i < count; ++i) {
        mine["key " + std::to_string(i)] = static_cast<float>(i % 100) + static_cast<float>(world.rank());
      }
      const auto reduced = all_reduce_dict(mine, reduce_op::max);
      REQUIRE(reduced.size() == count);
      bool all_right = true;
      for (std::size_t i = 0; i < count; ++i) {
        all_right = all_right && reduced.at("key " + std::to_string(i)) ==
                                     static_cast<float>(i % 100) + static_cast<float>(world.size() - 1);
      }
      CHECK(all_right);
    }
  });
}

TEST_CASE("all_reduce_dict: it has the bits of all_reduce") {
  at_every_size([](const process_group& world) {
    const float mine = 0.1F * static_cast<float>(world.rank() + 1);
    const std::map<int, float> dictionary{{1, mine}};
    CHECK(all_reduce_dict(dictionary).at(1) == all_reduce(mine, reduce_op::average));
  });
}

TEST_CASE("reduce_dict: different keys are an error on every rank that names them") {
  at_every_size(
      [](const process_group& world) {
        const int odd = world.size() - 1;
        losses mine{{"loss", 1}, {"shared", 2}};
        if (world.rank() == odd) {
          mine = {{"lost", 1}, {"shared", 2}, {"extra", 3}};
        }
        line_note note;
        for (const bool everywhere : {false, true}) {
          const auto problem = error_of<mismatch_error>([&] {
            if (everywhere) {
              (void)all_reduce_dict(mine, reduce_op::average, note(world));
            } else {
              (void)reduce_dict(mine, reduce_op::average, 0, note(world));
            }
          });
          CHECK(problem.first_rank() == 0);
          CHECK(problem.second_rank() == odd);
          CHECK(problem.rank() == world.rank());
          const char* const others[] = {"", "", "rank 0 lacks", "ranks 0 and 1 lack", "ranks 0, 1 and 2 lack"};
          const std::string all_others = odd == 7 ? "ranks 0, 1, 2, 3, 4, 5 and 6 lack" : others[odd + 1];
          CHECK_CONTAINS(problem.what(), "the ranks reduce different keys: " + all_others +
                                             " \"extra\", \"lost\"; rank " + std::to_string(odd) +
                                             " lacks \"loss\"; rank 0 called");
          CHECK_CONTAINS(problem.what(), note.text());
          check_same_everywhere(problem.detail(), world);
          check_usable(world);
        }
      },
      2);
}

TEST_CASE("reduce_dict: the error for different keys quotes the calls that passed them, even when ranks run ahead") {
  // Rank 0 is often long at its next operation when the others get to describe what it called.
  for (int round = 0; round < 100; ++round) {
    run_noted(3, {}, [](const process_group& world) {
      const losses mine{{world.rank() == 1 ? "a" : "b", 1.0}};
      line_note note;
      const auto problem = error_of<mismatch_error>([&] { (void)all_reduce_dict(mine, reduce_op::sum, note(world)); });
      barrier();
      CHECK_CONTAINS(problem.what(), "rank 0 called all_reduce_dict(");
      CHECK_CONTAINS(problem.what(), "rank 1 called all_reduce_dict(");
    });
  }
}

TEST_CASE("reduce_dict: an additional or missing key is an error that names it") {
  at_every_size(
      [](const process_group& world) {
        std::map<int, float> mine{{1, 1.0F}, {2, 1.0F}};
        if (world.rank() == 1) {
          mine.erase(2);
        }
        const auto problem = error_of<mismatch_error>([&] { (void)all_reduce_dict(mine); });
        CHECK_CONTAINS(problem.what(), "the ranks reduce different keys: rank 1 lacks 2; rank 0 called");
        check_usable(world);
      },
      2);
}

TEST_CASE("reduce_dict: an average of integers is an error") {
  at_every_size([](const process_group& world) {
    const std::map<std::string, int> counts{{"n", 1}};
    CHECK_CONTAINS(error_of<usage_error>([&] { (void)reduce_dict(counts, reduce_op{reduce_op::average}); }).what(),
                   "average of int32");
    CHECK(reduce_dict(counts, reduce_op::sum).at("n") == (world.rank() == 0 ? world.size() : 1));
    check_usable(world);
  });
}

TEST_CASE("reduce_dict: a premultiplied sum takes each rank's own factor") {
  at_every_size([](const process_group& world) {
    const losses mine{{"a", 2}, {"b", world.rank()}};
    const int n = world.size();
    losses expected{{"a", n * (n + 1)}, {"b", 0}};
    for (int rank = 0; rank < n; ++rank) {
      expected["b"] += rank * (rank + 1);
    }
    CHECK((all_reduce_dict(mine, reduce_op::premultiplied_sum(world.rank() + 1)) == expected));
  });
}

TEST_CASE("reduce_dict: the root is a rank of the group") {
  at_every_size([](const process_group& world) {
    const auto turned = world.split(0, -world.rank());
    const auto reduced = reduce_dict(losses{{"n", 1}}, reduce_op::sum, 0, turned);
    CHECK(reduced.at("n") == (world.rank() == world.size() - 1 ? world.size() : 1));
  });
}

TEST_CASE("reduce_dict: without init the result is the dictionary itself") {
  const losses mine{{"loss", 0.25}};
  CHECK((reduce_dict(mine) == mine));
  CHECK((all_reduce_dict(mine) == mine));
}

}  // namespace
