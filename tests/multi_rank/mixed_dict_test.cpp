// SPDX-License-Identifier: MIT
#include "ranks.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <unordered_map>
#include <utility>
#include <variant>

#include <hfcomm/collectives/reduce_dict.hpp>
#include <hfcomm/core/weighted_mean.hpp>

namespace {

using namespace hfcomm;
using namespace multi_rank;

using value = std::variant<double, std::int32_t, weighted_mean, bfloat16, std::uint8_t>;
using mixed = std::map<std::string, value>;
using nested = std::map<std::string, std::map<std::string, double>>;
using means = std::map<std::string, weighted_mean>;

bool same(const mixed& left, const mixed& right) {
  return left.size() == right.size() && std::equal(left.begin(), left.end(), right.begin(), [](auto& a, auto& b) {
           return a.first == b.first && a.second.index() == b.second.index() &&
                  std::visit(
                      [](auto x, auto y) {
                        if constexpr (std::is_same_v<decltype(x), decltype(y)>) {
                          return x == y;
                        } else {
                          return false;
                        }
                      },
                      a.second, b.second);
         });
}

TEST_CASE("weighted_mean: its value is the weighted mean of what was added") {
  weighted_mean mean;
  CHECK(std::isnan(mean.value()));
  mean.add(4);
  CHECK(mean.value() == 4);
  mean.add(1, 2);
  CHECK(mean.value() == 2);
  CHECK(mean == weighted_mean{6, 3});
  CHECK(mean + weighted_mean{4, 1} == weighted_mean{10, 4});
}

TEST_CASE("all_reduce_dict: weighted means add up, under average and under sum") {
  at_every_size([](const process_group& world) {
    means mine{{"loss", {}}, {"nothing", {}}};
    double sum = 0;
    double count = 0;
    for (int rank = 0; rank < world.size(); ++rank) {
      sum += (rank + 0.5) * (rank + 1);
      count += rank + 1;
    }
    mine["loss"].add(world.rank() + 0.5, world.rank() + 1);
    for (const auto& reduced : {all_reduce_dict(mine), all_reduce_dict(mine, reduce_op::sum)}) {
      CHECK(reduced.at("loss") == weighted_mean{sum, count});
      CHECK(reduced.at("loss").value() == sum / count);
      CHECK(std::isnan(reduced.at("nothing").value()));
    }
    CHECK(reduce_dict(mine).at("loss") == (world.rank() == 0 ? weighted_mean{sum, count} : mine.at("loss")));
    CHECK(all_reduce(mine.at("loss"), std::plus<>()) == weighted_mean{sum, count});
    for (const reduce_op op : std::array<reduce_op, 5>{reduce_op::min, reduce_op::max, reduce_op::product,
                                                       reduce_op::bit_or, reduce_op::premultiplied_sum(2)}) {
      const auto problem = error_of<usage_error>([&] { (void)all_reduce_dict(mine, op); });
      CHECK_CONTAINS(problem.what(), "\"loss\", \"nothing\": weighted means are added up");
      check_usable(world);
    }
  });
}

mixed mixed_of(int rank) {
  return {{"a", rank + 0.25},
          {"b", std::int32_t{rank + 1}},
          {"c", weighted_mean{1.5 * rank, 2}},
          {"d", bfloat16(static_cast<float>(rank))},
          {"e", std::uint8_t{200}},
          {"f", -1.0 * rank},
          {"g", std::int32_t{-rank}}};
}

TEST_CASE("all_reduce_dict: values of several types are reduced each as its own type") {
  at_every_size([](const process_group& world) {
    const int n = world.size();
    const int ranks = n * (n - 1) / 2;
    const mixed sums{{"a", ranks + 0.25 * n},
                     {"b", std::int32_t{ranks + n}},
                     {"c", weighted_mean{1.5 * ranks, 2.0 * n}},
                     {"d", bfloat16(static_cast<float>(ranks))},
                     {"e", static_cast<std::uint8_t>(200 * n)},
                     {"f", -1.0 * ranks},
                     {"g", std::int32_t{-ranks}}};
    const auto mine = mixed_of(world.rank());
    CHECK(same(all_reduce_dict(mine, reduce_op::sum), sums));
    for (int root = 0; root < n; ++root) {
      CHECK(same(reduce_dict(mine, reduce_op::sum, root), world.rank() == root ? sums : mine));
    }
    auto numbers = mine;
    numbers.erase("c");
    const auto largest = all_reduce_dict(numbers, reduce_op::max);
    CHECK(std::get<double>(largest.at("a")) == n - 0.75);
    CHECK(std::get<std::int32_t>(largest.at("b")) == n);
    CHECK(std::get<double>(largest.at("f")) == 0);
  });
}

TEST_CASE("all_reduce_dict: all types take one exchange") {
  at_every_size([](const process_group& world) {
    const auto number = [&] { return error_of<usage_error>([] { (void)gather(1, -1); }).sequence(); };
    const auto before = number();
    (void)all_reduce_dict(mixed_of(world.rank()), reduce_op::sum);
    CHECK(number() == before + 2);
  });
}

TEST_CASE("all_reduce_dict: an average with an integer is an error on every rank that names the key") {
  at_every_size([](const process_group& world) {
    const auto mine = mixed_of(world.rank());
    for (const bool everywhere : {false, true}) {
      const auto problem =
          error_of<usage_error>([&] { (void)(everywhere ? all_reduce_dict(mine) : reduce_dict(mine)); });
      CHECK_CONTAINS(problem.what(), "\"b\", \"g\": the average of int32 elements is not defined");
      check_same_everywhere(problem.detail(), world);
      check_usable(world);
    }
    auto floats = mine;
    std::erase_if(floats, [](const auto& entry) {
      return std::holds_alternative<std::int32_t>(entry.second) || std::holds_alternative<std::uint8_t>(entry.second);
    });
    const auto reduced = all_reduce_dict(floats);
    CHECK(std::get<double>(reduced.at("a")) == (world.size() - 1) / 2.0 + 0.25);
    CHECK(std::get<weighted_mean>(reduced.at("c")).count == 2 * world.size());
    const auto bits = error_of<usage_error>([&] { (void)all_reduce_dict(floats, reduce_op::bit_or); });
    CHECK_CONTAINS(bits.what(), "the bitwise or of bfloat16 elements is not defined; it is there for integers only");
    check_usable(world);
  });
}

TEST_CASE("all_reduce_dict: different types under one key are an error that names ranks and types") {
  at_every_size(
      [](const process_group& world) {
        const int odd = world.size() - 1;
        mixed mine{{"same", 1.0}, {"steps", std::int32_t{1}}};
        if (world.rank() == odd) {
          mine["steps"] = weighted_mean{};
        }
        const auto problem = error_of<mismatch_error>([&] { (void)all_reduce_dict(mine, reduce_op::sum); });
        CHECK(problem.first_rank() == 0);
        CHECK(problem.second_rank() == odd);
        CHECK_CONTAINS(problem.what(), "\"steps\" is int32 on rank" + std::string(odd > 1 ? "s 0" : " 0"));
        CHECK_CONTAINS(problem.what(), ", weighted_mean on rank " + std::to_string(odd) + "; rank 0 called");
        CHECK_FALSE(contains(problem.what(), "\"same\""));
        check_same_everywhere(problem.detail(), world);
        check_usable(world);
      },
      2);
}

TEST_CASE("reduce_dict: the error lists for every rank the keys it lacks") {
  run_noted(4, {}, [](const process_group& world) {
    const std::array<nested, 4> all{nested{{"train", {{"loss", 1}, {"lr", 2}}}, {"val", {{"loss", 3}}}},
                                    nested{{"train", {{"loss", 1}}}, {"val", {{"loss", 3}}}},
                                    nested{{"train", {{"loss", 1}, {"lr", 2}}}, {"val", {{"accuracy", 3}}}},
                                    nested{{"train", {{"loss", 1}}}, {"val", {{"loss", 3}}}}};
    line_note note;
    const auto problem = error_of<mismatch_error>(
        [&] { (void)reduce_dict(all[as_index(world.rank())], reduce_op::average, 0, note(world)); });
    CHECK_CONTAINS(problem.what(),
                   "rank 0 lacks \"val/accuracy\"; ranks 1 and 3 lack \"train/lr\", \"val/accuracy\"; rank 2 lacks "
                   "\"val/loss\"; rank 0 called reduce_dict(");
    CHECK(problem.first_rank() == 0);
    CHECK(problem.second_rank() == 1);
    check_same_everywhere(problem.detail(), world);
    check_usable(world);
  });
}

TEST_CASE("reduce_dict: the error counts missing keys beyond the first ones") {
  run_noted(2, {}, [](const process_group& world) {
    std::map<int, float> mine;
    for (int key = 100; world.rank() == 1 && key < 200; ++key) {
      mine[key] = 1;
    }
    const auto problem = error_of<mismatch_error>([&] { (void)all_reduce_dict(mine); });
    CHECK_CONTAINS(problem.what(), "rank 0 lacks 100, 101,");
    CHECK_CONTAINS(problem.what(), ", 131 and 68 more;");
    check_usable(world);
  });
}

TEST_CASE("reduce_dict: dictionaries may nest to any depth") {
  at_every_size([](const process_group& world) {
    const int n = world.size();
    const double mean = (n - 1) / 2.0;
    const double own = world.rank();
    const nested mine{{"train", {{"loss", own}, {"lr", 0.5}}}, {"val", {{"loss", 2 * own}}}, {"empty", {}}};
    const nested expected{{"train", {{"loss", mean}, {"lr", 0.5}}}, {"val", {{"loss", 2 * mean}}}, {"empty", {}}};
    CHECK((all_reduce_dict(mine) == expected));
    for (int root = 0; root < n; ++root) {
      CHECK((reduce_dict(mine, reduce_op::average, root) == (world.rank() == root ? expected : mine)));
    }

    using deep = std::unordered_map<int, std::map<std::pair<int, char>, std::unordered_map<std::string, value>>>;
    const deep three{{7, {{{1, 'x'}, {{"n", std::int32_t{1}}, {"x", own}}}}},
                     {-1, {{{2, 'y'}, {{"m", weighted_mean{own, 1}}}}, {{0, 'y'}, {}}}}};
    const auto reduced = all_reduce_dict(three, reduce_op::sum);
    CHECK(std::get<std::int32_t>(reduced.at(7).at({1, 'x'}).at("n")) == n);
    CHECK(std::get<double>(reduced.at(7).at({1, 'x'}).at("x")) == mean * n);
    CHECK(std::get<weighted_mean>(reduced.at(-1).at({2, 'y'}).at("m")).value() == mean);
    CHECK(reduced.at(-1).at({0, 'y'}).empty());
  });
}

TEST_CASE("reduce_dict: keys that print alike but nest differently are different") {
  at_every_size(
      [](const process_group& world) {
        const nested mine = world.rank() == 0 ? nested{{"a", {{"b/c", 1}}}} : nested{{"a/b", {{"c", 1}}}};
        const auto problem = error_of<mismatch_error>([&] { (void)all_reduce_dict(mine); });
        CHECK_CONTAINS(problem.what(), "rank 0 lacks \"a/b/c\"");
        check_usable(world);
      },
      2);
}

TEST_CASE("reduce_dict: a dictionary may be empty") {
  at_every_size([](const process_group& world) {
    CHECK(all_reduce_dict(means{}).empty());
    CHECK(reduce_dict(mixed{}).empty());
    CHECK(all_reduce_dict(nested{}).empty());
    CHECK(reduce_dict(nested{{"a", {}}}).size() == 1);
    CHECK(all_reduce_dict(std::map<std::string, double>{}, reduce_op::max).empty());
    check_usable(world);
  });
}

TEST_CASE("reduce_dict: several types may take more than one chunk") {
  at_every_size([](const process_group& world) {
    mixed mine;
    for (int i = 0; i < 9001; ++i) {
      const std::string key = "some key " + std::to_string(i);
      if (i % 3 == 0) {
        mine[key] = i + 0.5 * world.rank();
      } else if (i % 3 == 1) {
        mine[key] = std::int32_t{i * world.rank()};
      } else {
        mine[key] = static_cast<std::uint8_t>(i);
      }
    }
    const auto reduced = all_reduce_dict(mine, reduce_op::sum);
    const int n = world.size();
    const int ranks = n * (n - 1) / 2;
    bool right = reduced.size() == mine.size();
    for (int i = 0; i < 9001; ++i) {
      const auto& got = reduced.at("some key " + std::to_string(i));
      right = right && (i % 3 == 0   ? std::get<double>(got) == i * n + 0.5 * ranks
                        : i % 3 == 1 ? std::get<std::int32_t>(got) == i * ranks
                                     : std::get<std::uint8_t>(got) == static_cast<std::uint8_t>(i * n));
    }
    CHECK(right);
  });
}

/// A key whose save may throw.
struct failing_key {
  int number = 0;
  template <class Archive>
  void save(Archive& archive) const {
    if (number < 0) {
      throw std::domain_error("not this key");
    }
    archive(number);
  }
  template <class Archive>
  void load(Archive& archive) {
    archive(number);
  }
  friend auto operator<=>(const failing_key&, const failing_key&) = default;
};

TEST_CASE("reduce_dict: a key that cannot be encoded is an error on every rank") {
  at_every_size([](const process_group& world) {
    const bool wrong = world.rank() == world.size() - 1;
    const std::map<failing_key, double> mine{{failing_key{wrong ? -1 : 1}, 2.0}};
    const auto call = [&] { (void)all_reduce_dict(mine); };
    if (wrong) {
      CHECK(error_of<std::domain_error>(call).what() == std::string("not this key"));
    } else {
      CHECK_CONTAINS(error_of<peer_error>(call).what(), "serializing its dictionary threw: not this key");
    }
    check_usable(world);
    const std::map<failing_key, double> others{{failing_key{world.rank()}, 2.0}};
    if (world.size() > 1) {
      CHECK_CONTAINS(error_of<mismatch_error>([&] { (void)all_reduce_dict(others); }).what(), "lack");
      check_usable(world);
    }
  });
}

TEST_CASE("reduce_dict: a factor that is not a number is an error on every rank") {
  at_every_size([](const process_group& world) {
    const bool wrong = world.rank() == 0;
    const auto op = reduce_op::premultiplied_sum(wrong ? std::nan("") : 1.0);
    const auto call = [&] { (void)all_reduce_dict(mixed_of(0), op); };
    if (wrong) {
      CHECK_CONTAINS(error_of<usage_error>(call).what(), "not a number");
    } else {
      CHECK_CONTAINS(error_of<peer_error>(call).what(), "not a number");
    }
    check_usable(world);
    const std::map<int, std::variant<float, double>> mine{{1, 1.0F}, {2, 2.0}};
    const auto reduced = all_reduce_dict(mine, reduce_op::premultiplied_sum(world.rank()));
    const int ranks = world.size() * (world.size() - 1) / 2;
    CHECK(std::get<float>(reduced.at(1)) == static_cast<float>(ranks));
    CHECK(std::get<double>(reduced.at(2)) == 2.0 * ranks);
  });
}

TEST_CASE("dictionary: it accepts maps to numbers, means, their variants and such maps only") {
  static_assert(dictionary<std::map<int, float16>>);
  static_assert(dictionary<nested>);
  static_assert(dictionary<std::unordered_map<int, std::map<int, mixed>>>);
  static_assert(!dictionary<std::map<int, std::string>>);
  static_assert(!dictionary<std::map<int, bool>>);
  static_assert(!dictionary<std::map<int, std::variant<int, std::string>>>);
  static_assert(!dictionary<std::map<int, std::map<int, std::string>>>);
  static_assert(!dictionary<std::vector<int>>);
  const mixed alone = mixed_of(3);
  CHECK(same(all_reduce_dict(alone, reduce_op::sum), alone));
}

}  // namespace
