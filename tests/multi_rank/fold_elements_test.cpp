// SPDX-License-Identifier: MIT
#include "ranks.hpp"

#include <algorithm>
#include <complex>
#include <cstdint>
#include <functional>
#include <span>

#include <hfcomm/collectives/all_reduce.hpp>
#include <hfcomm/collectives/reduce.hpp>

namespace {

using namespace hfcomm;
using namespace multi_rank;

/// Neither commutative nor associative: only one order gives its result.
constexpr std::uint32_t chain(std::uint32_t left, std::uint32_t right) { return left * 31 + right; }

std::uint32_t element(int rank, std::size_t i) {
  return static_cast<std::uint32_t>(i * 2654435761U) ^ static_cast<std::uint32_t>(rank * 977);
}

std::vector<std::uint32_t> elements(int rank, std::size_t count) {
  std::vector<std::uint32_t> result(count);
  for (std::size_t i = 0; i < count; ++i) {
    result[i] = element(rank, i);
  }
  return result;
}

std::vector<std::uint32_t> chained(int ranks, std::size_t count) {
  auto result = elements(0, count);
  for (int rank = 1; rank < ranks; ++rank) {
    for (std::size_t i = 0; i < count; ++i) {
      result[i] = chain(result[i], element(rank, i));
    }
  }
  return result;
}

struct extremes {
  int low = 0;
  int high = 0;
  friend bool operator==(const extremes&, const extremes&) = default;
};

}  // namespace

template <>
inline constexpr bool hfcomm::enable_raw_bytes<extremes> = true;

namespace {

TEST_CASE("all_reduce of a span by a callable: it folds element by element in rank order") {
  at_every_size([](const process_group& world) {
    for (const std::size_t count : each_of(0, 1, 3, 21, 5000)) {
      auto data = elements(world.rank(), count);
      all_reduce(std::span(data), chain);
      CHECK((data == chained(world.size(), count)));
    }
  });
}

TEST_CASE("reduce of a span by a callable: only the root gets the result") {
  at_every_size([](const process_group& world) {
    for (const std::size_t count : each_of(0, 1, 3, 21, 5000)) {
      for (const int root : {0, world.size() - 1}) {
        auto data = elements(world.rank(), count);
        int calls = 0;
        reduce(std::span(data), root, [&](std::uint32_t left, std::uint32_t right) {
          ++calls;
          return chain(left, right);
        });
        CHECK((data == (world.rank() == root ? chained(world.size(), count) : elements(world.rank(), count))));
        CHECK(calls == (world.rank() == root ? static_cast<int>(count) * (world.size() - 1) : 0));
      }
    }
  });
}

TEST_CASE("reductions of a span by a callable: spans may be longer than the staging memory") {
  const std::size_t held = hfcomm::detail::fold_table_bytes / sizeof(std::uint32_t);
  for (const int ranks : {1, 2, 3}) {
    const std::size_t chunk = held / as_index(ranks);
    for (const std::size_t count : {chunk - 1, chunk, chunk + 1, 2 * chunk + 17}) {
      const auto expected = chained(ranks, count);
      run_noted(ranks, std::to_string(count) + " elements", [&](const process_group& world) {
        auto data = elements(world.rank(), count);
        all_reduce(std::span(data), chain);
        CHECK((data == expected));
        data = elements(world.rank(), count);
        reduce(std::span(data), world.size() - 1, chain);
        CHECK((data == (world.rank() == world.size() - 1 ? expected : elements(world.rank(), count))));
      });
    }
  }
}

TEST_CASE("all_reduce of a span by a callable: elements may be of any plain type") {
  at_every_size([](const process_group& world) {
    const int n = world.size();
    std::array both{extremes{world.rank(), world.rank()}, extremes{-world.rank(), 5}};
    all_reduce(std::span(both), [](const extremes& left, const extremes& right) {
      return extremes{std::min(left.low, right.low), std::max(left.high, right.high)};
    });
    CHECK((both == std::array{extremes{0, n - 1}, extremes{1 - n, 5}}));

    std::array<std::complex<double>, 2> turns{std::complex<double>(0, 1), 2.0};
    all_reduce(std::span(turns), std::multiplies<>());
    CHECK(turns[1] == std::complex<double>(1 << n));

    std::array<float16, 1> halves{float16(static_cast<float>(world.rank()))};
    all_reduce(std::span(halves), [](float16 left, float16 right) { return left < right ? right : left; });
    CHECK(static_cast<float>(halves[0]) == static_cast<float>(n - 1));

    std::array<std::int8_t, 1> small{1};
    all_reduce(std::span(small), std::plus<>());  // std::plus returns an int for them
    CHECK(small[0] == n);
  });
}

TEST_CASE("all_reduce by a callable: a container is one object, a view is its elements") {
  at_every_size([](const process_group& world) {
    const std::vector<int> mine{world.rank()};
    const auto together = all_reduce(mine, [](std::vector<int> left, const std::vector<int>& right) {
      left.insert(left.end(), right.begin(), right.end());
      return left;
    });
    CHECK(together.size() == as_index(world.size()));
    auto copy = mine;
    all_reduce(std::span(copy), std::plus<>());
    CHECK((copy == std::vector<int>{world.size() * (world.size() - 1) / 2}));
  });
}

TEST_CASE("all_reduce by a callable: its exception is thrown on that rank and is an error on the others") {
  const std::size_t several_chunks = hfcomm::detail::fold_table_bytes / sizeof(std::uint32_t) + 1;
  for (const std::size_t count : {std::size_t{1}, std::size_t{5000}, several_chunks}) {
    for (const bool at_the_end : {false, true}) {
      for (const int ranks : {2, 3}) {
        run_noted(ranks, std::to_string(count) + " elements", [&](const process_group& world) {
          auto data = elements(world.rank(), count);
          std::size_t calls = at_the_end ? count * as_index(ranks - 1) : 1;
          const bool wrong = world.rank() == 1;
          line_note note;
          const auto one_too_many = [&](std::uint32_t left, std::uint32_t right) {
            if (wrong && --calls == 0) {
              throw std::domain_error("these do not add up");
            }
            return chain(left, right);
          };
          const auto call = [&] { all_reduce(std::span(data), one_too_many, note(world)); };
          if (wrong) {
            CHECK(error_of<std::domain_error>(call).what() == std::string("these do not add up"));
          } else {
            const auto problem = error_of<peer_error>(call);
            CHECK(problem.peer() == 1);
            CHECK_FALSE(problem.fatal());
            CHECK_CONTAINS(problem.what(), "all_reduce(" + std::to_string(count * 4) + " bytes of unsigned int)");
            CHECK_CONTAINS(problem.what(), "the callable threw: these do not add up");
            CHECK_CONTAINS(problem.what(), note.text());
          }
          check_usable(world);
        });
      }
    }
  }
}

TEST_CASE("reduce by a callable: its exception is thrown on the root and is an error on the others") {
  at_every_size(
      [](const process_group& world) {
        std::vector<int> data(40, world.rank());
        const int root = world.size() / 2;
        const auto call = [&] {
          reduce(std::span(data), root, [](int, int) -> int { throw std::domain_error("no"); });
        };
        if (world.rank() == root) {
          CHECK(error_of<std::domain_error>(call).what() == std::string("no"));
        } else {
          CHECK(error_of<peer_error>(call).peer() == root);
          CHECK((data == std::vector<int>(40, world.rank())));
        }
        check_usable(world);
      },
      2);
}

TEST_CASE("reductions by a callable: different lengths, a kernel on one side and a wrong root are errors") {
  const std::size_t several_chunks = hfcomm::detail::fold_table_bytes / sizeof(std::uint32_t) + 1;
  at_every_size(
      [&](const process_group& world) {
        const bool odd = world.rank() == world.size() - 1;
        for (const auto& [here, there] :
             {std::pair<std::size_t, std::size_t>{3, 4}, {3, several_chunks}, {several_chunks, several_chunks + 1}}) {
          std::vector<std::uint32_t> data(odd ? there : here, 7U);
          const auto before = data;
          const auto problem = error_of<mismatch_error>([&] { all_reduce(std::span(data), chain); });
          CHECK(problem.second_rank() == world.size() - 1);
          CHECK_CONTAINS(problem.what(), "all_reduce(" + std::to_string(here * 4) + " bytes of unsigned int)");
          CHECK_CONTAINS(problem.what(), "all_reduce(" + std::to_string(there * 4) + " bytes of unsigned int)");
          CHECK((data == before));
          check_usable(world);
        }
        std::vector<std::uint32_t> data(10, 1U);
        const auto mixed = error_of<mismatch_error>([&] {
          if (odd) {
            all_reduce(std::span(data));
          } else {
            all_reduce(std::span(data), std::plus<>());
          }
        });
        CHECK_CONTAINS(mixed.what(), "all_reduce(10 x uint32, sum)");
        CHECK_CONTAINS(error_of<usage_error>([&] { reduce(std::span(data), world.size(), chain); }).what(),
                       "is not a rank of this group");
        CHECK((data == std::vector<std::uint32_t>(10, 1U)));
        check_usable(world);
      },
      2);
}

TEST_CASE("reductions by a callable: without init the elements are unchanged") {
  std::array data{1, 2, 3};
  all_reduce(std::span(data), std::plus<>());
  hfcomm::reduce(std::span(data), 0, std::plus<>());
  CHECK((data == std::array{1, 2, 3}));
}

TEST_CASE("reductions by a callable: a span at address 0 is an error on every rank") {
  at_every_size([](const process_group& world) {
    const bool odd = world.rank() == world.size() - 1;
    std::vector<int> data(4, 1);
    const std::span<int> mine = odd ? std::span<int>(static_cast<int*>(nullptr), 4) : std::span(data);
    for (const bool to_all : {true, false}) {
      const auto call = [&] {
        to_all ? all_reduce(mine, std::plus<>(), world) : hfcomm::reduce(mine, 0, std::plus<>(), world);
      };
      const std::string text = "a buffer of 4 elements is at address 0";
      if (odd) {
        CHECK_CONTAINS(error_of<usage_error>(call).what(), text);
      } else {
        CHECK_CONTAINS(error_of<peer_error>(call).what(), text);
      }
      check_usable(world);
    }
    CHECK((data == std::vector<int>(4, 1)));
  });
}

}  // namespace
