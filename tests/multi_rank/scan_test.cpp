// SPDX-License-Identifier: MIT
#include "ranks.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <type_traits>

#include <hfcomm/collectives/exclusive_scan.hpp>
#include <hfcomm/collectives/scan.hpp>

namespace {

using namespace hfcomm;
using namespace multi_rank;

/// Neither commutative nor associative: only one order gives its result.
constexpr std::uint32_t mix_in(std::uint32_t left, std::uint32_t right) { return left * 31 + right; }

std::uint32_t number_of(int rank, std::size_t i) {
  return static_cast<std::uint32_t>(i * 2654435761U) ^ static_cast<std::uint32_t>(rank * 977 + 5);
}

std::vector<std::uint32_t> numbers_of(int rank, std::size_t count) {
  std::vector<std::uint32_t> result(count);
  for (std::size_t i = 0; i < count; ++i) {
    result[i] = number_of(rank, i);
  }
  return result;
}

/// The fold of the first `ranks` ranks' numbers, beginning with the first of them.
std::vector<std::uint32_t> mixed_in(int ranks, std::size_t count) {
  auto result = numbers_of(0, count);
  for (int rank = 1; rank < ranks; ++rank) {
    for (std::size_t i = 0; i < count; ++i) {
      result[i] = mix_in(result[i], number_of(rank, i));
    }
  }
  return result;
}

/// The same, beginning with `init`.
std::vector<std::uint32_t> mixed_in_from(std::uint32_t init, int ranks, std::size_t count) {
  std::vector<std::uint32_t> result(count, init);
  for (int rank = 0; rank < ranks; ++rank) {
    for (std::size_t i = 0; i < count; ++i) {
      result[i] = mix_in(result[i], number_of(rank, i));
    }
  }
  return result;
}

/// The group of the first `count` ranks; empty on the others.
std::optional<process_group> first_ranks(const process_group& world, int count) {
  std::vector<int> members;
  for (int rank = 0; rank < count; ++rank) {
    members.push_back(rank);
  }
  return world.subgroup(members);
}

template <class T>
T value_of(int rank, std::size_t i) {
  const auto number = static_cast<int>((i * 7 + as_index(rank) * 5 + i * as_index(rank) * 3) % 23) - 11;
  if constexpr (std::integral<T>) {
    return static_cast<T>(number * 5 + rank);
  } else {
    return T(static_cast<float>(number) / 3.0F + static_cast<float>(rank) * 0.125F);
  }
}

template <class T>
std::vector<T> values_of(int rank, std::size_t count) {
  std::vector<T> result(count);
  for (std::size_t i = 0; i < count; ++i) {
    result[i] = value_of<T>(rank, i);
  }
  return result;
}

/// The result of a reduction of nothing.
template <class T>
T expected_identity(reduce_kind kind) {
  const bool is_least = kind == reduce_kind::max;
  const bool is_one = kind == reduce_kind::product || kind == reduce_kind::logical_and;
  if (kind == reduce_kind::min || is_least) {
    if constexpr (std::is_integral_v<T>) {
      return is_least ? std::numeric_limits<T>::min() : std::numeric_limits<T>::max();
    } else {
      if constexpr (std::is_same_v<T, float8_e4m3>) {
        return T(is_least ? -448.0F : 448.0F);  // it has no infinity
      } else if constexpr (std::is_same_v<T, float8_e5m2>) {
        return T::from_bits(is_least ? 0xfc : 0x7c);  // an infinity does not become one
      } else {
        return static_cast<T>(is_least ? -HUGE_VAL : HUGE_VAL);
      }
    }
  }
  if constexpr (std::is_integral_v<T>) {
    return is_one ? T{1} : kind == reduce_kind::bit_and ? static_cast<T>(~T{}) : T{};
  } else {
    return static_cast<T>(is_one ? 1.0F : 0.0F);
  }
}

/// Checks each kind of reduction that elements of type T have, for these counts.
template <class T>
void check_prefixes(const process_group& world, std::span<const std::size_t> counts) {
  for (int kind = 0; kind <= static_cast<int>(reduce_kind::logical_or); ++kind) {
    const auto op = reduce_op(static_cast<reduce_kind>(kind));
    if (detail::needs_floating_point(op.kind()) || !detail::valid(op.kind(), element_type_of<T>)) {
      continue;
    }
    for (const std::size_t count : counts) {
      const auto mine = values_of<T>(world.rank(), count);
      std::vector<T> expected = mine;
      std::vector<T> expected_before(count, expected_identity<T>(op.kind()));
      for (int ranks = 1; ranks <= world.size(); ++ranks) {
        const auto group = first_ranks(world, ranks);
        auto reduced = mine;
        if (group) {
          all_reduce(reduced, op, *group);
        }
        if (world.rank() == ranks - 1) {
          expected = reduced;
        }
        broadcast(std::span(reduced), 0, world);
        if (world.rank() == ranks) {
          expected_before = reduced;
        }
      }
      std::vector<T> out(count);
      scan(mine, out, op, world);
      CHECK(same_bits(out, expected));
      hfcomm::exclusive_scan(mine, out, op, world);
      CHECK(same_bits(out, expected_before));
      auto data = mine;
      scan(data, op, world);
      CHECK(same_bits(data, expected));
      data = mine;
      hfcomm::exclusive_scan(data, op, world);
      CHECK(same_bits(data, expected_before));
    }
  }
}

TEST_CASE("scan: every type and reduction has the bits of all_reduce among the ranks up to this one") {
  const auto counts = each_of(0, 1, 20, 2'000);
  at_every_size([&](const process_group& world) {
    check_prefixes<std::int8_t>(world, counts);
    check_prefixes<std::uint64_t>(world, counts);
    check_prefixes<float>(world, counts);
    check_prefixes<double>(world, counts);
    check_prefixes<float16>(world, counts);
    check_prefixes<bfloat16>(world, counts);
    check_prefixes<float8_e4m3>(world, counts);
    check_prefixes<float8_e5m2>(world, counts);
  });
}

TEST_CASE("scan: a number gives the sum of the ranks up to this one, exclusive_scan that of those before it") {
  at_every_size([](const process_group& world) {
    const std::size_t count = as_index(world.rank()) + 3;
    std::size_t before = 0;
    for (int rank = 0; rank < world.rank(); ++rank) {
      before += as_index(rank) + 3;
    }
    CHECK(hfcomm::exclusive_scan(count) == before);
    CHECK(scan(count) == before + count);
    CHECK(scan(world.rank() == 0 ? 7 : -world.rank(), reduce_op::max) == 7);
    CHECK(scan(0.5, reduce_op::product) == 1.0 / static_cast<double>(2U << world.rank()));
    check_usable(world);
  });
}

TEST_CASE("exclusive_scan: rank 0 gets the identity of the reduction, or init") {
  at_every_size([](const process_group& world) {
    if (world.rank() != 0) {
      (void)hfcomm::exclusive_scan(1);
      (void)hfcomm::exclusive_scan(2, reduce_op::product);
      (void)hfcomm::exclusive_scan(3, reduce_op::min);
      (void)hfcomm::exclusive_scan(3.0F, reduce_op::min);
      (void)hfcomm::exclusive_scan(3.0F, reduce_op::max);
      (void)hfcomm::exclusive_scan(float8_e4m3(3.0F), reduce_op::max);
      (void)hfcomm::exclusive_scan(std::uint8_t{4}, reduce_op::bit_and);
      (void)hfcomm::exclusive_scan(4, reduce_op::bit_or);
      (void)hfcomm::exclusive_scan(4, reduce_op::bit_xor);
      CHECK(hfcomm::exclusive_scan(std::string("abc"), "", std::plus<>()).size() == 3 * as_index(world.rank()));
      return;
    }
    CHECK(hfcomm::exclusive_scan(1) == 0);
    CHECK(hfcomm::exclusive_scan(2, reduce_op::product) == 1);
    CHECK(hfcomm::exclusive_scan(3, reduce_op::min) == std::numeric_limits<int>::max());
    CHECK(hfcomm::exclusive_scan(3.0F, reduce_op::min) == std::numeric_limits<float>::infinity());
    CHECK(hfcomm::exclusive_scan(3.0F, reduce_op::max) == -std::numeric_limits<float>::infinity());
    CHECK(static_cast<float>(hfcomm::exclusive_scan(float8_e4m3(3.0F), reduce_op::max)) == -448.0F);
    CHECK(hfcomm::exclusive_scan(std::uint8_t{4}, reduce_op::bit_and) == 255);
    CHECK(hfcomm::exclusive_scan(4, reduce_op::bit_or) == 0);
    CHECK(hfcomm::exclusive_scan(4, reduce_op::bit_xor) == 0);
    CHECK(hfcomm::exclusive_scan(std::string("abc"), "the init of rank 0", std::plus<>()) == "the init of rank 0");
  });
}

TEST_CASE("exclusive_scan: init may be an element of the buffer that is scanned in place") {
  at_every_size([](const process_group& world) {
    auto alone = numbers_of(world.rank(), 1000);
    auto within = alone;
    const std::uint32_t first = alone[0];
    hfcomm::exclusive_scan(std::span(alone), first, mix_in, world);
    hfcomm::exclusive_scan(std::span(within), within[0], mix_in, world);
    CHECK(within == alone);
  });
}

TEST_CASE("scan by a callable: objects are folded in rank order") {
  at_every_size([](const process_group& world) {
    std::string before = ">";
    for (int rank = 0; rank < world.rank(); ++rank) {
      before += text_of(rank, as_index(rank) * 70'000);
    }
    const auto mine = text_of(world.rank(), as_index(world.rank()) * 70'000);
    CHECK((hfcomm::exclusive_scan(mine, ">", std::plus<>(), world) == before));
    CHECK((scan(mine, std::plus<>(), world) == (before + mine).substr(1)));
    const std::vector<int> list{world.rank()};
    const auto lists = scan(list, [](std::vector<int> left, const std::vector<int>& right) {
      left.insert(left.end(), right.begin(), right.end());
      return left;
    });
    CHECK(lists.size() == as_index(world.rank()) + 1);
  });
}

TEST_CASE("scan of a span by a callable: it folds element by element in rank order, in place and out of place") {
  at_every_size([](const process_group& world) {
    for (const std::size_t count : each_of(0, 1, 3, 21, 5'000)) {
      const auto mine = numbers_of(world.rank(), count);
      const auto expected = mixed_in(world.rank() + 1, count);
      const auto expected_before = mixed_in_from(17, world.rank(), count);
      auto out = mine;
      scan(std::span(out), mix_in);
      CHECK((out == expected));
      out = mine;
      hfcomm::exclusive_scan(std::span(out), 17, mix_in);
      CHECK((out == expected_before));
      out.assign(count, 0);
      scan(mine, out, mix_in);
      CHECK((out == expected));
      hfcomm::exclusive_scan(mine, out, 17, mix_in);
      CHECK((out == expected_before));
      auto shared = world.allocate<std::uint32_t>(count);
      std::copy(mine.begin(), mine.end(), shared.begin());
      scan(shared, mix_in);
      CHECK(std::equal(shared.begin(), shared.end(), expected.begin()));
    }
  });
}

TEST_CASE("scan: spans may be longer than the staging memory") {
  const std::size_t held = hfcomm::detail::fold_table_bytes / sizeof(std::uint32_t);
  for (const int ranks : {1, 2, 3}) {
    const std::size_t chunk = held / as_index(ranks);
    for (const std::size_t count : {chunk - 1, chunk, chunk + 1, 2 * chunk + 17}) {
      run_noted(ranks, std::to_string(count) + " elements", [&](const process_group& world) {
        const auto mine = numbers_of(world.rank(), count);
        auto data = mine;
        scan(std::span(data), mix_in);
        CHECK((data == mixed_in(world.rank() + 1, count)));
        data = mine;
        hfcomm::exclusive_scan(std::span(data), 3, mix_in);
        CHECK((data == mixed_in_from(3, world.rank(), count)));
        auto sums = world.allocate<std::uint32_t>(count);
        scan(mine, sums);
        std::uint32_t expected = 0;
        for (int rank = 0; rank <= world.rank(); ++rank) {
          expected += number_of(rank, count - 1);
        }
        CHECK(sums[count - 1] == expected);
        hfcomm::exclusive_scan(mine, sums);
        CHECK(sums[count - 1] == expected - mine[count - 1]);
      });
    }
  }
}

TEST_CASE("scan: calls that differ are a mismatch_error on every rank, and no element changes") {
  const std::size_t several_chunks = hfcomm::detail::fold_table_bytes / sizeof(std::uint32_t) + 1;
  at_every_size(
      [&](const process_group& world) {
        const bool odd = world.rank() == world.size() - 1;
        std::vector<std::uint32_t> data(odd ? 4 : 3, 7U);
        CHECK_CONTAINS(error_of<mismatch_error>([&] { scan(data); }).what(), "scan(3 x uint32, sum)");
        CHECK_CONTAINS(error_of<mismatch_error>([&] { scan(std::span(data), mix_in); }).what(),
                       "scan(12 bytes of unsigned int)");
        CHECK((data == std::vector<std::uint32_t>(odd ? 4 : 3, 7U)));

        std::vector<std::uint32_t> many(several_chunks + (odd ? 1 : 0), 7U);
        const auto lengths = error_of<mismatch_error>([&] { hfcomm::exclusive_scan(many); });
        CHECK(lengths.second_rank() == world.size() - 1);
        CHECK(std::count(many.begin(), many.end(), 7U) == static_cast<std::ptrdiff_t>(many.size()));

        int one = 1;
        CHECK_CONTAINS(error_of<mismatch_error>([&] {
                         odd ? scan(std::span(&one, 1)) : hfcomm::exclusive_scan(std::span(&one, 1));
                       }).what(),
                       "exclusive_scan(1 x int32, sum)");
        CHECK_CONTAINS(error_of<mismatch_error>([&] {
                         scan(std::span(&one, 1), odd ? reduce_op{reduce_op::max} : reduce_op::sum);
                       }).what(),
                       "scan(1 x int32, max)");
        CHECK_CONTAINS(error_of<mismatch_error>([&] {
                         odd ? scan(std::span(&one, 1)) : scan(std::span(&one, 1), std::plus<>());
                       }).what(),
                       "scan(4 bytes of int)");
        CHECK(one == 1);
        check_usable(world);
      },
      2);
}

TEST_CASE("scan: bad arguments on one rank are errors on every rank") {
  at_every_size([](const process_group& world) {
    const bool odd = world.rank() == world.size() - 1;
    std::vector<int> data(5, 1);
    std::vector<int> short_out(3);
    const std::span<int> nowhere(static_cast<int*>(nullptr), 4);
    const auto expect = [&](const std::string& text, auto call) {
      odd ? check_contains(error_of<usage_error>(call).what(), text, __FILE__, __LINE__)
          : check_contains(error_of<peer_error>(call).what(), text, __FILE__, __LINE__);
      check_usable(world);
    };
    std::vector<int> out(4);
    const auto in = std::span(data).first(4);
    expect("the output has 3 elements, the input 4", [&] { odd ? scan(in, short_out) : scan(in, out); });
    expect("the output has 3 elements, the input 4", [&] {
      odd ? hfcomm::exclusive_scan(in, short_out, 0, std::plus<>()) : hfcomm::exclusive_scan(in, out, 0, std::plus<>());
    });
    expect("the output overlaps the input", [&] { scan(in, odd ? std::span(data).last(4) : std::span(out)); });
    expect("the output overlaps the input",
           [&] { scan(in, odd ? std::span(data).last(4) : std::span(out), std::plus<>()); });
    expect("a buffer of 4 elements is at address 0", [&] { scan(odd ? nowhere : in); });
    expect("a buffer of 4 elements is at address 0", [&] { scan(odd ? nowhere : in, std::plus<>()); });
    CHECK((data == std::vector<int>(5, 1)));
  });
}

TEST_CASE("scan: an average chosen at run time is a usage_error, with one rank, too") {
  at_every_size([](const process_group& world) {
    for (const reduce_kind kind : {reduce_kind::average, reduce_kind::premultiplied_sum}) {
      std::vector<float> data(3, 1.0F);
      const auto text = "a scan has no " + std::string(to_string(kind)) + ": scan the sum";
      CHECK_CONTAINS(error_of<usage_error>([&] { scan(data, reduce_op(kind)); }).what(), text);
      CHECK_CONTAINS(error_of<usage_error>([&] { hfcomm::exclusive_scan(data, reduce_op(kind)); }).what(), text);
    }
    CHECK_CONTAINS(error_of<usage_error>([&] { (void)scan(1.0F, reduce_op(reduce_kind::bit_or)); }).what(),
                   "the bitwise or of float32 elements is not defined");
    check_usable(world);
  });
}

TEST_CASE("scan of a span by a callable: its exception is thrown on that rank and is an error on the others") {
  const std::size_t several_chunks = hfcomm::detail::fold_table_bytes / sizeof(std::uint32_t) + 1;
  for (const std::size_t count : {std::size_t{1}, several_chunks}) {
    for (const int ranks : {2, 3}) {
      run_noted(ranks, std::to_string(count) + " elements", [&](const process_group& world) {
        auto data = numbers_of(world.rank(), count);
        const auto refuses = [&](std::uint32_t left, std::uint32_t right) {
          return world.rank() == 1 ? throw std::domain_error("no") : mix_in(left, right);
        };
        line_note note;
        const auto call = [&] { scan(std::span(data), refuses, note(world)); };
        if (world.rank() == 1) {
          CHECK(error_of<std::domain_error>(call).what() == std::string("no"));
        } else {
          const auto problem = error_of<peer_error>(call);
          CHECK(problem.peer() == 1);
          CHECK_CONTAINS(problem.what(), "the callable threw: no");
          CHECK_CONTAINS(problem.what(), note.text());
        }
        check_usable(world);
      });
    }
  }
}

TEST_CASE("scan of objects by a callable: its exception is thrown on its rank only") {
  at_every_size(
      [](const process_group& world) {
        const auto refuses_two = [](const std::string& left, const std::string& right) {
          return left.size() + right.size() == 2 ? throw std::domain_error("no") : left + right;
        };
        const std::string mine(world.rank() == 0 ? 1 : as_index(world.rank()), 'x');
        if (world.rank() == 0) {
          CHECK(scan(mine, refuses_two) == "x");
        } else {
          CHECK(error_of<std::domain_error>([&] { (void)scan(mine, refuses_two); }).what() == std::string("no"));
        }
        check_usable(world);
      },
      2);
}

TEST_CASE("scan: each form can be started") {
  at_every_size([](const process_group& world) {
    const int rank = world.rank();
    const int up_to = (rank + 1) * (rank + 2) / 2;
    std::vector<int> in(3, rank + 1);
    std::vector<int> out(3);
    std::vector<int> out_before(3);
    std::vector<int> data = in;
    std::vector<int> data_before = in;
    std::vector<int> folded = in;
    std::vector<int> folded_before = in;
    auto first = scan_async(in, out);
    auto second = scan_async(data);
    auto third = scan_async(rank + 1);
    auto fourth = scan_async(std::string("ab"), std::plus<>());
    auto fifth = scan_async(std::span(folded), std::plus<>());
    auto sixth = exclusive_scan_async(in, out_before);
    auto seventh = exclusive_scan_async(data_before);
    auto eighth = exclusive_scan_async(rank + 1);
    auto ninth = exclusive_scan_async(std::string("ab"), "", std::plus<>());
    auto tenth = exclusive_scan_async(std::span(folded_before), 100, std::plus<>());
    tenth.wait();
    CHECK(ninth.wait().size() == 2 * as_index(rank));
    CHECK(eighth.wait() == up_to - rank - 1);
    seventh.wait();
    sixth.wait();
    fifth.wait();
    CHECK(fourth.wait().size() == 2 * (as_index(rank) + 1));
    CHECK(third.wait() == up_to);
    second.wait();
    first.wait();
    const std::vector<int> expected(3, up_to);
    const std::vector<int> expected_before(3, up_to - rank - 1);
    CHECK((out == expected));
    CHECK((data == expected));
    CHECK((folded == expected));
    CHECK((out_before == expected_before));
    CHECK((data_before == expected_before));
    CHECK((folded_before == std::vector<int>(3, up_to - rank - 1 + 100)));
  });
}

TEST_CASE("scan: without init a rank has its own values, and nothing before them") {
  std::array data{1, 2, 3};
  scan(data);
  scan(std::span(data), std::plus<>());
  CHECK((data == std::array{1, 2, 3}));
  CHECK(scan(5) == 5);
  CHECK(hfcomm::exclusive_scan(5) == 0);
  CHECK(hfcomm::exclusive_scan(std::string("a"), "init", std::plus<>()) == "init");
}

}  // namespace
