// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <numeric>
#include <vector>

#include <hfcomm/data/distributed_sampler.hpp>
#include <hfcomm/testing.hpp>

namespace {

using hfcomm::distributed_sampler;
using hfcomm::tail;
using indices = std::vector<std::size_t>;

constexpr std::array rank_counts{1, 2, 3, 4, 8};

indices of(const distributed_sampler& sampler) { return {sampler.indices().begin(), sampler.indices().end()}; }
indices left_of(const distributed_sampler& sampler) { return {sampler.begin(), sampler.end()}; }

/// The order that the ranks share: a single rank gets all of it.
indices order(std::size_t size, std::uint64_t seed, std::uint64_t epoch) {
  distributed_sampler sampler(size, {.seed = seed}, 0, 1);
  sampler.set_epoch(epoch);
  return of(sampler);
}

TEST_CASE("distributed_sampler: the orders are the same on every platform") {
  // From an implementation in another language.
  CHECK(order(10, 42, 3) == indices{6, 0, 3, 1, 2, 7, 8, 4, 9, 5});
  CHECK(order(10, 0, 0) == indices{2, 7, 1, 9, 4, 3, 8, 6, 0, 5});
  constexpr auto most = std::numeric_limits<std::uint64_t>::max();
  CHECK(order(5, most, most) == indices{1, 4, 3, 0, 2});
}

TEST_CASE("distributed_sampler: rank r of n gets items r, r + n, ... of one order") {
  for (const int ranks : rank_counts) {
    for (const std::size_t size : {0U, 1U, 2U, 7U, 8U, 9U, 64U, 1001U}) {
      for (const bool shuffle : {false, true}) {
        for (const tail rest : {tail::pad, tail::drop, tail::keep}) {
          for (const std::uint64_t epoch : {0U, 5U}) {
            const auto n = static_cast<std::size_t>(ranks);
            indices all(size);
            std::iota(all.begin(), all.end(), std::size_t{0});
            if (shuffle) {
              all = order(size, 9, epoch);
            }
            for (int rank = 0; rank < ranks; ++rank) {
              const auto r = static_cast<std::size_t>(rank);
              const std::size_t kept = size > r ? (size - r - 1) / n + 1 : 0;
              const std::size_t share = rest == tail::drop ? size / n : rest == tail::pad ? (size + n - 1) / n : kept;
              distributed_sampler sampler(size, {shuffle, 9, rest}, rank, ranks);
              sampler.set_epoch(epoch);
              CHECK(sampler.epoch() == epoch);
              indices expected;
              for (std::size_t number = static_cast<std::size_t>(rank); expected.size() < share; number += n) {
                expected.push_back(all[number % size]);
              }
              CHECK(sampler.size() == share);
              CHECK(of(sampler) == expected);
              CHECK(left_of(sampler) == expected);
            }
          }
        }
      }
    }
  }
}

TEST_CASE("distributed_sampler: padding repeats and dropping omits as few items as possible") {
  for (const int ranks : rank_counts) {
    const auto n = static_cast<std::size_t>(ranks);
    for (const tail rest : {tail::pad, tail::drop, tail::keep}) {
      std::map<std::size_t, int> times;
      for (int rank = 0; rank < ranks; ++rank) {
        for (const auto index : distributed_sampler(1001, {.tail = rest}, rank, ranks)) {
          CHECK(index < 1001);
          ++times[index];
        }
      }
      const std::size_t repeated = static_cast<std::size_t>(
          std::count_if(times.begin(), times.end(), [](const auto& item) { return item.second == 2; }));
      CHECK(times.size() == (rest == tail::drop ? 1001 / n * n : 1001));
      CHECK(repeated == (rest == tail::pad ? (n - 1001 % n) % n : 0));
    }
  }
}

TEST_CASE("distributed_sampler: every pair of seed and epoch gives another order") {
  std::vector<indices> orders;
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    for (std::uint64_t epoch = 0; epoch < 6; ++epoch) {
      orders.push_back(order(50, seed, epoch));
      CHECK(orders.back() == order(50, seed, epoch));
      auto sorted = orders.back();
      std::sort(sorted.begin(), sorted.end());
      CHECK(sorted.front() == 0);
      CHECK(sorted.back() == 49);
      CHECK(std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end());
    }
  }
  std::sort(orders.begin(), orders.end());
  CHECK(std::adjacent_find(orders.begin(), orders.end()) == orders.end());
}

TEST_CASE("distributed_sampler: all orders of a few items are equally likely") {
  std::map<indices, int> times;
  constexpr int draws = 24'000;
  for (int epoch = 0; epoch < draws; ++epoch) {
    ++times[order(4, 1, static_cast<std::uint64_t>(epoch))];
  }
  REQUIRE(times.size() == 24);
  double chi_squared = 0;
  for (const auto& [one, count] : times) {
    chi_squared += std::pow(count - draws / 24.0, 2) / (draws / 24.0);
  }
  // 23 degrees of freedom: more than 60 once in 30000 times; here the numbers are always the same.
  CHECK(chi_squared < 60);
  CHECK(chi_squared > 5);
}

TEST_CASE("distributed_sampler: an interrupted epoch resumes where it stopped") {
  distributed_sampler sampler(100, {.seed = 3}, 1, 3);
  sampler.set_epoch(4);
  const auto all = of(sampler);
  REQUIRE(all.size() == 34);
  for (const std::size_t position : {0U, 1U, 20U, 34U}) {
    distributed_sampler resumed(100, {.seed = 3}, 1, 3);
    resumed.set_epoch(4);
    resumed.start_at(position);
    CHECK(resumed.position() == position);
    CHECK(resumed.size() == 34);
    CHECK(of(resumed) == all);
    CHECK(left_of(resumed) == indices(all.begin() + static_cast<std::ptrdiff_t>(position), all.end()));
    CHECK_THROWS_WITH_AS(resumed.start_at(35), doctest::Contains("position 35 is beyond the 34 items"),
                         hfcomm::usage_error);
    CHECK(resumed.position() == position);
    resumed.set_epoch(4);
    CHECK(resumed.position() == 0);
    CHECK(left_of(resumed) == all);
    resumed.set_epoch(5);
    CHECK(of(resumed) != all);
  }
}

TEST_CASE("distributed_sampler: a group's ranks share the items without communication") {
  for (const int ranks : rank_counts) {
    hfcomm::testing::run_ranks(ranks, [&](const hfcomm::process_group& world) {
      const distributed_sampler own(77, {.seed = 2});
      const distributed_sampler expected(77, {.seed = 2}, world.rank(), world.size());
      CHECK(of(own) == of(expected));
      CHECK(of(distributed_sampler(77, {.seed = 2}, hfcomm::process_group())) == order(77, 2, 0));
    });
  }
  CHECK(of(distributed_sampler(77, {.seed = 2})) == order(77, 2, 0));
}

TEST_CASE("distributed_sampler: there may be more ranks than items") {
  for (int rank = 0; rank < 8; ++rank) {
    const auto item = static_cast<std::size_t>(rank) % 3;
    CHECK(of(distributed_sampler(3, {.shuffle = false}, rank, 8)) == indices{item});
    CHECK(of(distributed_sampler(3, {.shuffle = false, .tail = tail::drop}, rank, 8)).empty());
    CHECK(of(distributed_sampler(3, {.shuffle = false, .tail = tail::keep}, rank, 8)) ==
          (rank < 3 ? indices{item} : indices{}));
  }
}

TEST_CASE("distributed_sampler: an impossible rank is a usage_error") {
  for (const auto& [rank, ranks] : {std::pair{-1, 2}, {2, 2}, {0, 0}, {0, -1}}) {
    CHECK_THROWS_AS(distributed_sampler(10, {}, rank, ranks), hfcomm::usage_error);
  }
}

}  // namespace
