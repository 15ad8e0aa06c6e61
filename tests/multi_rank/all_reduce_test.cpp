// SPDX-License-Identifier: MIT
#include "ranks.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <set>
#include <span>

namespace {

using namespace hfcomm;
using namespace multi_rank;

TEST_CASE("all_reduce: it reduces one number from each rank") {
  at_every_size([](const process_group& world) {
    const int n = world.size();
    int product = 1;
    for (int rank = 0; rank < n; ++rank) {
      product *= rank + 1;
    }
    CHECK(all_reduce(world.rank()) == n * (n - 1) / 2);
    CHECK(all_reduce(world.rank() + 1, reduce_op::product) == product);
    CHECK(all_reduce(world.rank(), reduce_op::min) == 0);
    CHECK(all_reduce(world.rank(), reduce_op::max) == n - 1);
    CHECK(all_reduce(static_cast<float>(world.rank()), reduce_op::average) == static_cast<float>(n - 1) / 2);
    CHECK(all_reduce(static_cast<char>(1)) == static_cast<char>(n));
    CHECK(static_cast<float>(all_reduce(bfloat16(1.5F))) == static_cast<float>(n) * 1.5F);
  });
}

TEST_CASE("all_reduce: it works in place and out of place") {
  at_every_size([](const process_group& world) {
    for (const std::size_t count : each_of(0, 1, 3, 4096, 4097, 65'537)) {
      std::vector<float> in(count);
      std::vector<float> expected(count);
      for (std::size_t i = 0; i < count; ++i) {
        in[i] = static_cast<float>(i % 1000) + static_cast<float>(world.rank());
        expected[i] = static_cast<float>((i % 1000) * as_index(world.size())) +
                      static_cast<float>(world.size() * (world.size() - 1) / 2);
      }
      const auto before = in;
      std::vector<float> out(count, -1.0F);
      all_reduce(in, out);
      CHECK((in == before));
      CHECK((out == expected));
      all_reduce(in);
      CHECK((in == expected));
    }
  });
}

TEST_CASE("all_reduce: it takes spans, arrays and parts of arrays") {
  at_every_size([](const process_group& world) {
    std::array<double, 4> values;
    values.fill(1.0);
    all_reduce(std::span(values).first(2), reduce_op::sum, world);
    const double n = world.size();
    CHECK((values == std::array{n, n, 1.0, 1.0}));
    const std::array<double, 2> in{1, 2};
    all_reduce(in, std::span(values).last(2));
    CHECK((values == std::array{n, n, n, 2 * n}));
    int plain_array[2] = {1, 2};
    all_reduce(plain_array);
    CHECK(plain_array[1] == 2 * world.size());
  });
}

TEST_CASE("all_reduce: a callable folds objects in rank order") {
  at_every_size([](const process_group& world) {
    const auto text = all_reduce(std::to_string(world.rank()), std::plus<>());
    CHECK(text == std::string("01234567").substr(0, as_index(world.size())));

    using counts = std::map<std::string, int>;
    const auto merge = [](counts left, const counts& right) {
      for (const auto& [word, count] : right) {
        left[word] += count;
      }
      return left;
    };
    const auto merged = all_reduce(counts{{"all", 1}, {std::to_string(world.rank()), world.rank()}}, merge);
    CHECK(merged.size() == as_index(world.size()) + 1);
    CHECK(merged.at("all") == world.size());
    CHECK(merged.at(std::to_string(world.size() - 1)) == world.size() - 1);

    CHECK(all_reduce(world.rank(), [](int left, int right) { return std::max(left, right); }) == world.size() - 1);
    CHECK(all_reduce(true, std::logical_and<>()));
    CHECK(all_reduce(world.rank() == 0, std::logical_and<>()) == (world.size() == 1));
  });
}

TEST_CASE("all_reduce: integers wrap around") {
  at_every_size([](const process_group& world) {
    const auto n = static_cast<std::uint32_t>(world.size());
    const auto largest = std::numeric_limits<std::int32_t>::max();
    CHECK(static_cast<std::uint32_t>(all_reduce(largest)) == static_cast<std::uint32_t>(largest) * n);
    CHECK(all_reduce(std::uint8_t{200}) == static_cast<std::uint8_t>(200 * n));
  });
}

TEST_CASE("all_reduce: sums that depend on the order have the same bits on all ranks and in every run") {
  at_every_size([](const process_group& world) {
    std::vector<float> in(5000);
    for (std::size_t i = 0; i < in.size(); ++i) {
      in[i] = std::ldexp(static_cast<float>((i * 37 + as_index(world.rank()) * 101) % 1013) - 500.0F,
                         static_cast<int>((i + as_index(world.rank()) * 7) % 40) - 20);
    }
    std::vector<std::uint32_t> first;
    for (int run = 0; run < 3; ++run) {
      std::vector<float> out(in.size());
      all_reduce(in, out);
      std::vector<std::uint32_t> bits(out.size());
      std::transform(out.begin(), out.end(), bits.begin(), [](float x) { return std::bit_cast<std::uint32_t>(x); });
      first = run == 0 ? bits : first;
      CHECK((bits == first));
      check_same_everywhere(bits, world);
      // A part of it, too: where the elements are in the buffer makes no difference.
      std::vector<float> part(in.begin() + 13, in.begin() + 1000);
      all_reduce(part);
      CHECK(std::equal(part.begin(), part.end(), out.begin() + 13));
    }
  });
}

TEST_CASE("all_reduce: it handles NaN and infinity") {
  at_every_size([](const process_group& world) {
    constexpr float nan = std::numeric_limits<float>::quiet_NaN();
    constexpr float infinity = std::numeric_limits<float>::infinity();
    const bool last = world.rank() == world.size() - 1;
    CHECK(std::isnan(all_reduce(last ? nan : 1.0F)));
    CHECK(all_reduce(last ? infinity : 1.0F) == infinity);
    CHECK(std::isnan(all_reduce(world.rank() == 0 ? nan : 1.0F, reduce_op::max)));
    CHECK((world.size() == 1 || all_reduce(last ? nan : 1.0F, reduce_op::max) == 1.0F));
  });
}

TEST_CASE("all_reduce: an output of the wrong size is an error on every rank") {
  at_every_size([](const process_group& world) {
    const std::vector<float> in(10);
    std::vector<float> out(world.rank() == 0 ? 11 : 10, 3.0F);
    const auto call = [&] { all_reduce(in, out); };
    if (world.rank() == 0) {
      CHECK_CONTAINS(error_of<usage_error>(call).what(), "11 elements, the input 10");
    } else {
      CHECK_CONTAINS(error_of<peer_error>(call).what(), "11 elements, the input 10");
    }
    CHECK((out == std::vector<float>(out.size(), 3.0F)));
    check_usable(world);
  });
}

TEST_CASE("all_reduce: an average of integers is an error, also in a group of one") {
  at_every_size([](const process_group& world) {
    const auto problem = error_of<usage_error>([&] { (void)all_reduce(world.rank(), reduce_op{reduce_op::average}); });
    CHECK_CONTAINS(problem.what(), "average of int32");
    check_usable(world);
  });
  CHECK_CONTAINS(error_of<usage_error>([] { (void)all_reduce(1U, reduce_op{reduce_op::average}); }).what(),
                 "average of uint32");
}

TEST_CASE("all_reduce: without init the result is the value itself") {
  CHECK(all_reduce(2.5, reduce_op::average) == 2.5);
  CHECK(all_reduce(2.5, reduce_op::premultiplied_sum(-2)) == -5.0);
  CHECK(all_reduce(6, reduce_op::bit_xor) == 6);
  CHECK(all_reduce(std::string("x"), std::plus<>()) == "x");
  const std::array in{1, 2};
  std::array out{0, 0};
  all_reduce(in, out);
  CHECK((out == in));
}

TEST_CASE("all_reduce: in a group it reduces over that group's ranks only") {
  at_every_size([](const process_group& world) {
    const auto half = world.split(world.rank() % 2);
    CHECK(all_reduce(1, reduce_op::sum, half) == half.size());
    const auto ranks = all_reduce(
        std::set<int>{world.rank()},
        [](std::set<int> left, const std::set<int>& right) {
          left.insert(right.begin(), right.end());
          return left;
        },
        half);
    CHECK(ranks.size() == as_index(half.size()));
    CHECK(ranks.contains(world.rank()));
  });
}

TEST_CASE("all_reduce: bitwise reductions work on integers") {
  at_every_size([](const process_group& world) {
    const std::uint32_t mine = 1U << world.rank();
    const std::uint32_t all = (1U << world.size()) - 1;
    CHECK(all_reduce(mine, reduce_op::bit_or) == all);
    CHECK(all_reduce(mine, reduce_op::bit_xor) == all);
    CHECK(all_reduce(7U, reduce_op::bit_xor) == (world.size() % 2 == 1 ? 7U : 0U));
    CHECK(all_reduce(~mine, reduce_op::bit_and) == ~all);
    CHECK(all_reduce(static_cast<signed char>(-1 - world.rank()), reduce_op::bit_and) ==
          static_cast<signed char>(world.size() == 1   ? -1
                                   : world.size() <= 2 ? -2
                                   : world.size() <= 4 ? -4
                                                       : -8));
    const auto problem = error_of<usage_error>([] { (void)all_reduce(1.0F, reduce_op{reduce_op::bit_or}); });
    CHECK_CONTAINS(problem.what(), "the bitwise or of float32 elements is not defined; it is there for integers only");
    check_usable(world);
  });
}

TEST_CASE("all_reduce: a premultiplied sum takes each rank's own factor") {
  at_every_size([](const process_group& world) {
    const int n = world.size();
    const auto own = reduce_op::premultiplied_sum(world.rank() + 0.5);
    double expected = 0;
    for (int rank = 0; rank < n; ++rank) {
      expected += (rank + 0.5) * 2 * (rank + 1);
    }
    CHECK(all_reduce(2.0 * (world.rank() + 1), own) == expected);
    CHECK(static_cast<double>(all_reduce(float16(2.0F * static_cast<float>(world.rank() + 1)), own)) ==
          static_cast<double>(float16(static_cast<float>(expected))));
    CHECK(all_reduce(1.0F, reduce_op::premultiplied_sum(0.25)) == 0.25F * static_cast<float>(n));
    // One after the other: the factors of the operation before are gone.
    CHECK(all_reduce(1.0F, world.rank() == 0 ? reduce_op{own} : reduce_op::premultiplied_sum(-1)) ==
          0.5F - static_cast<float>(n - 1));
    CHECK(all_reduce(1.0F) == static_cast<float>(n));
    const double infinity = std::numeric_limits<double>::infinity();
    CHECK(all_reduce(1.0F, reduce_op::premultiplied_sum(infinity)) == static_cast<float>(infinity));
    const auto problem = error_of<usage_error>([] { (void)all_reduce(1, reduce_op{reduce_op::premultiplied_sum(1)}); });
    CHECK_CONTAINS(problem.what(), "premultiplied sum of int32");
    check_usable(world);
  });
}

TEST_CASE("all_reduce: ranks of a premultiplied sum must agree on the tag, not on the factor") {
  at_every_size([](const process_group& world) {
    const auto op = reduce_op::premultiplied_sum(world.rank() + 1);
    const double expected = 0.5 * world.size() * (world.size() + 1);
    for (const std::size_t count : {1U, 9U, 10U, 1000U, 100'000U}) {  // in the cell, in a slot, in chunks
      std::vector<double> data(count, 1.0);
      all_reduce(data, op, world.with_tag(count));
      CHECK(data == std::vector<double>(count, expected));
    }
    CHECK(all_reduce(1.0, op, world.with_tag(~std::uint64_t{0})) == expected);
    CHECK(all_reduce_dict(std::map<int, double>{{1, 1.0}}, op, world.with_tag(7)).at(1) == expected);
    check_usable(world);
  });
}

TEST_CASE("all_reduce: a factor that is not a number is an error on every rank") {
  at_every_size([](const process_group& world) {
    const bool wrong = world.rank() == world.size() - 1;
    const auto call = [&] {
      return all_reduce(1.0F, reduce_op::premultiplied_sum(wrong ? std::numeric_limits<double>::quiet_NaN() : 1.0));
    };
    if (wrong) {
      CHECK_CONTAINS(error_of<usage_error>(call).what(), "the factor of the premultiplied sum is not a number");
    } else {
      CHECK_CONTAINS(error_of<peer_error>(call).what(), "the factor of the premultiplied sum is not a number");
    }
    check_usable(world);
  });
}

}  // namespace
