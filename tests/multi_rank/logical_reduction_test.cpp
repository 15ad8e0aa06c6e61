// SPDX-License-Identifier: MIT
#include "machines.hpp"

#include <algorithm>
#include <cmath>
#include <complex>
#include <concepts>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace logical_reduction {
namespace {

using namespace hfcomm;
using namespace multi_rank;

/// Returns whether element i of this rank is true. Each 16 elements have each pattern of four ranks.
constexpr bool is_true(int rank, std::size_t i) { return (i >> (rank % 4) & 1) != 0; }

/// Returns an element that is true or false. True ones are not only 1, false ones of double are -0.0 at times.
template <class T>
T element(int rank, std::size_t i) {
  if constexpr (std::same_as<T, bool>) {
    return is_true(rank, i);
  } else if constexpr (std::floating_point<T>) {
    return is_true(rank, i) ? (i % 3 == 0 ? std::nan("") : T(-0.25)) : (i % 5 == 0 ? T(-0.0) : T(0));
  } else {
    return is_true(rank, i) ? static_cast<T>(2 << (rank % 4)) : T{};
  }
}

template <class T>
std::vector<T> elements(int rank, std::size_t count) {
  std::vector<T> result(count);
  for (std::size_t i = 0; i < count; ++i) {
    result[i] = element<T>(rank, i);
  }
  return result;
}

/// Returns the result of the first `ranks` ranks; of none, the identity.
template <class T>
T expected(reduce_kind kind, int ranks, std::size_t i) {
  const bool is_and = kind == reduce_kind::logical_and;
  bool result = is_and;
  for (int rank = 0; rank < ranks; ++rank) {
    result = is_and ? result && is_true(rank, i) : result || is_true(rank, i);
  }
  return static_cast<T>(result);
}

/// Returns whether the elements, the first of which has that number, are the result of the first `ranks` ranks.
template <class T>
bool has_result(const std::vector<T>& data, reduce_kind kind, int ranks, std::size_t number = 0) {
  std::vector<T> wanted(data.size());
  for (std::size_t i = 0; i < data.size(); ++i) {
    wanted[i] = expected<T>(kind, ranks, number + i);
  }
  return same_bits(data, wanted);
}

/// Checks the operations on one value of a rank. `op` is one of the constants.
template <class T>
void check_values(auto op, const process_group& world) {
  const int rank = world.rank();
  const int ranks = world.size();
  for (std::size_t i = 0; i < 16; ++i) {
    const T mine = element<T>(rank, i);
    CHECK(all_reduce(mine, op) == expected<T>(op, ranks, i));
    CHECK(all_reduce_async(mine, op).wait() == expected<T>(op, ranks, i));
    const auto at_root = rank == ranks - 1 ? std::optional(expected<T>(op, ranks, i)) : std::nullopt;
    CHECK(hfcomm::reduce(mine, ranks - 1, op) == at_root);
    CHECK(reduce_async(mine, ranks - 1, op).wait() == at_root);
    CHECK(scan(mine, op) == expected<T>(op, rank + 1, i));
    CHECK(scan_async(mine, op).wait() == expected<T>(op, rank + 1, i));
  }
}

/// Returns this rank's elements after `change(span)`.
template <class T>
std::vector<T> changed(int rank, std::size_t count, auto change) {
  std::vector<T> data = elements<T>(rank, count);
  change(std::span(data));
  return data;
}

/// Checks the operations on elements, in place and into another buffer.
template <class T>
void check_elements(auto op, const process_group& world) {
  const int rank = world.rank();
  const int ranks = world.size();
  const std::size_t count = 53;
  CHECK(has_result<T>(changed<T>(rank, count, [&](auto data) { all_reduce(data, op); }), op, ranks));
  CHECK(has_result<T>(changed<T>(rank, count, [&](auto data) { all_reduce(data, reduce_op(op)); }), op, ranks));
  CHECK(has_result<T>(changed<T>(rank, count, [&](auto data) { all_reduce_async(data, op).wait(); }), op, ranks));
  CHECK(has_result<T>(changed<T>(rank, count, [&](auto data) { scan(data, op); }), op, rank + 1));
  CHECK(has_result<T>(changed<T>(rank, count, [&](auto data) { hfcomm::exclusive_scan(data, op); }), op, rank));
  const auto rooted = changed<T>(rank, count, [&](auto data) { hfcomm::reduce(data, 0, op); });
  CHECK((rank == 0 ? has_result<T>(rooted, op, ranks) : same_bits(rooted, elements<T>(rank, count))));

  const auto in = elements<T>(rank, count * as_index(ranks));
  std::vector<T> part(count, T(3));
  reduce_scatter(in, part, op);
  CHECK(has_result<T>(part, op, ranks, count * as_index(rank)));
  std::ranges::fill(part, T(3));
  reduce_scatter_async(in, part, op).wait();
  CHECK(has_result<T>(part, op, ranks, count * as_index(rank)));
}

template <class T>
void check_type(const process_group& world) {
  check_values<T>(reduce_op::logical_and, world);
  check_values<T>(reduce_op::logical_or, world);
  check_elements<T>(reduce_op::logical_and, world);
  check_elements<T>(reduce_op::logical_or, world);
}

}  // namespace

TEST_CASE("logical reductions: any element but zero is true, and results are 0 or 1") {
  at_every_size([](const process_group& world) {
    check_type<int>(world);
    check_type<double>(world);
    check_type<std::uint8_t>(world);
    check_usable(world);
  });
}

TEST_CASE("logical reductions: they combine bools") {
  at_every_size([](const process_group& world) {
    check_values<bool>(reduce_op::logical_and, world);
    check_values<bool>(reduce_op::logical_or, world);
    CHECK(all_reduce(world.rank() < 1, reduce_op::logical_and) == (world.size() == 1));
    CHECK(hfcomm::exclusive_scan(world.rank() != 0, true, reduce_op::logical_and) == (world.rank() == 0));
    check_usable(world);
  });
}

TEST_CASE("logical reductions: several machines have the results of one") {
  for (const machine_layout& machines : {machine_layout{3}, {2, 2}, {1, 2}, {1, 1, 1}}) {
    on_machines(machines, [](const process_group& world) {
      for (const std::size_t count : {std::size_t{20}, std::size_t{1} << (under_thread_sanitizer ? 16 : 18)}) {
        for (const reduce_kind kind : {reduce_kind::logical_and, reduce_kind::logical_or}) {
          const auto data =
              changed<int>(world.rank(), count, [&](auto span) { all_reduce(span, reduce_op(kind), world); });
          CHECK(has_result(data, kind, world.size()));
        }
      }
      CHECK_FALSE(all_reduce(world.rank() > 0, reduce_op::logical_and));
      CHECK(all_reduce(world.rank() > 0, reduce_op::logical_or));
    });
  }
}

TEST_CASE("logical reductions: numbers in dictionaries, and before init") {
  at_every_size([](const process_group& world) {
    const std::map<std::string, int> mine{{"all", 5}, {"some", world.rank()}, {"none", 0}};
    CHECK((all_reduce_dict(mine, reduce_op::logical_or) ==
           std::map<std::string, int>{{"all", 1}, {"some", world.size() > 1 ? 1 : 0}, {"none", 0}}));
  });
  CHECK(all_reduce(7, reduce_op::logical_and) == 1);
  CHECK(all_reduce(-0.0, reduce_op::logical_or) == 0.0);
  CHECK(all_reduce(true, reduce_op::logical_and));
}

TEST_CASE("logical reductions: ranks that differ are a mismatch_error, and complex numbers a usage_error") {
  at_every_size(
      [](const process_group& world) {
        const reduce_op op = world.rank() == 0 ? reduce_op{reduce_op::logical_and} : reduce_op::logical_or;
        const auto problem = error_of<mismatch_error>([&] { (void)all_reduce(1, op); });
        CHECK_CONTAINS(problem.what(), "all_reduce(1 x int32, logical and)");
        CHECK_CONTAINS(problem.what(), "all_reduce(1 x int32, logical or)");
        check_usable(world);
      },
      2);
  CHECK_CONTAINS(error_of<usage_error>([] {
                   (void)all_reduce(std::complex<double>(1, 1), reduce_op{reduce_op::logical_or});
                 }).what(),
                 "the logical or of complex128 elements is not defined; complex numbers are neither true nor false");
}

}  // namespace logical_reduction
