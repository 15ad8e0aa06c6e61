// SPDX-License-Identifier: MIT
#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>

#include "parts.hpp"

#include <hfcomm/collectives/reduce_scatter.hpp>

namespace {

using namespace hfcomm;
using namespace multi_rank;

/// Elements whose sums need rounding, different on every rank.
template <class T>
std::vector<T> input_of(int rank, std::size_t count) {
  std::vector<T> elements(count);
  T* const place = elements.data();
  for (std::size_t i = 0; i < count; ++i) {
    const auto bits = static_cast<std::uint32_t>(i + 1) * 2654435761U + static_cast<std::uint32_t>(rank) * 40503U;
    if constexpr (std::integral<T>) {
      place[i] = static_cast<T>(bits);
    } else {
      place[i] = static_cast<T>(static_cast<float>(bits % 20'011) / 5003.0F - 2.0F);
    }
  }
  return elements;
}

reduce_op op_of(reduce_kind kind, int rank) {
  return kind == reduce_kind::premultiplied_sum ? reduce_op{reduce_op::premultiplied_sum(0.3 - 1.7 * rank)}
                                                : reduce_op{kind};
}

/// Compares equal and uneven parts, out of place and in place, with this rank's part of all_reduce's result.
template <class T>
void check(const process_group& world, const std::vector<std::size_t>& counts, reduce_kind kind) {
  const reduce_op op = op_of(kind, world.rank());
  const auto original = input_of<T>(world.rank(), sum_of(counts));
  const auto in = original;
  auto everything = in;
  all_reduce(everything, op);
  const auto begin =
      static_cast<std::ptrdiff_t>(std::accumulate(counts.begin(), counts.begin() + world.rank(), std::size_t{0}));
  const std::size_t mine = counts[as_index(world.rank())];
  const auto expected = std::span<const T>(everything).subspan(static_cast<std::size_t>(begin), mine);
  const bool even = std::count(counts.begin(), counts.end(), mine) == world.size();
  std::vector<T> out(mine, T(77));
  reduce_scatter(in, out, counts, op);
  CHECK(same_bits(out, expected));
  CHECK(same_bits(in, original));
  auto data = in;
  const auto place = std::span(data).subspan(static_cast<std::size_t>(begin), mine);
  reduce_scatter(data, place, counts, op);
  CHECK(same_bits(place, expected));
  std::copy_n(in.begin() + begin, mine, place.begin());
  CHECK(same_bits(data, in));  // the other parts stay as they are
  // Only where all ranks find it so.
  if (all_reduce(even ? 1 : 0, reduce_op::min) == 1) {
    out.assign(mine, T(77));
    reduce_scatter(in, out, op);
    CHECK(same_bits(out, expected));
    data = in;
    reduce_scatter(data, place, op);
    CHECK(same_bits(place, expected));
  }
}

template <class T>
void check_all_operations() {
  for (const int ranks : rank_counts) {
    for (int number = 0; number <= static_cast<int>(reduce_kind::premultiplied_sum); ++number) {
      const auto kind = static_cast<reduce_kind>(number);
      if (hfcomm::detail::valid(kind, element_type_of<T>)) {
        run_noted(ranks, std::string(to_string(kind)), [&](const process_group& world) {
          for (const std::size_t count : each_of(1, 7, 333)) {
            check<T>(world, std::vector<std::size_t>(as_index(ranks), count), kind);
          }
          std::vector<std::size_t> counts(as_index(ranks), 3);
          counts.front() = 1001;
          check<T>(world, counts, kind);
        });
      }
    }
  }
}

TEST_CASE_TEMPLATE("reduce_scatter: every operation works on integers", T, std::int8_t, std::uint16_t, std::int32_t,
                   std::uint64_t) {
  check_all_operations<T>();
}

TEST_CASE_TEMPLATE("reduce_scatter: every operation works on floats", T, float16, bfloat16, float, double) {
  check_all_operations<T>();
}

TEST_CASE("reduce_scatter: equal parts may have every length") {
  for (const int ranks : rank_counts) {
    for (const std::size_t count : part_lengths(ranks)) {
      run_noted(ranks, "count " + std::to_string(count), [&](const process_group& world) {
        check<float>(world, std::vector<std::size_t>(as_index(ranks), count), reduce_kind::sum);
      });
    }
  }
}

TEST_CASE("reduce_scatter: parts may be uneven") {
  for (const int ranks : rank_counts) {
    for (const auto& counts : uneven_counts(ranks)) {
      run_noted(ranks, text_of_counts(counts),
                [&](const process_group& world) { check<float>(world, counts, reduce_kind::average); });
    }
  }
}

TEST_CASE("reduce_scatter: several megabytes of one-byte and eight-byte elements are exact") {
  at_every_size([](const process_group& world) {
    check<std::int8_t>(world, std::vector<std::size_t>(as_index(world.size()), 900'001), reduce_kind::max);
    std::vector<std::size_t> counts(as_index(world.size()), 0);
    counts.back() = 300'001;
    check<double>(world, counts, reduce_kind::sum);
  });
}

TEST_CASE("reduce_scatter: in a subgroup it reduces over that group's ranks") {
  run_noted(4, {}, [](const process_group& world) {
    const auto pair = world.split(world.rank() / 2, -world.rank());
    const std::vector<int> in{1 + world.rank(), 10 * (1 + world.rank())};
    std::vector<int> out(1);
    reduce_scatter(in, out, reduce_op::sum, pair);
    const int total = world.rank() < 2 ? 3 : 7;
    CHECK(out[0] == (pair.rank() == 0 ? total : 10 * total));
  });
}

TEST_CASE("reduce_scatter: bad arguments on one rank are errors on every rank, and the group stays usable") {
  at_every_size([](const process_group& world) {
    const auto ranks = as_index(world.size());
    for (const int odd : {0, world.size() - 1}) {
      const bool is_odd = world.rank() == odd;
      expect_fault<usage_error>(world, odd, "the input has " + std::to_string(2 * ranks + 1) + " elements, but",
                                [&](line_note& note) {
                                  std::vector<int> in(2 * ranks + (is_odd ? 1 : 0));
                                  std::vector<int> out(2);
                                  reduce_scatter(in, out, reduce_op::sum, note(world));
                                });
      expect_fault<usage_error>(world, odd, "the average of int32 elements is not defined", [&](line_note& note) {
        std::vector<int> in(2 * ranks);
        std::vector<int> out(2);
        reduce_scatter(in, out, is_odd ? reduce_op{reduce_op::average} : reduce_op::sum, note(world));
      });
      expect_fault<usage_error>(world, odd, "the factor of the premultiplied sum is not a number",
                                [&](line_note& note) {
                                  std::vector<float> in(2 * ranks);
                                  std::vector<float> out(2);
                                  const double factor = is_odd ? std::numeric_limits<double>::quiet_NaN() : 1.0;
                                  reduce_scatter(in, out, reduce_op::premultiplied_sum(factor), note(world));
                                });
      expect_fault<usage_error>(world, odd, "at address 0", [&](line_note& note) {
        std::vector<int> in(2 * ranks);
        std::vector<int> out(2);
        reduce_scatter(in, is_odd ? std::span<int>(static_cast<int*>(nullptr), 2) : std::span(out), reduce_op::sum,
                       note(world));
      });
      expect_fault<usage_error>(world, odd, "the output overlaps the input", [&](line_note& note) {
        std::vector<int> in(2 * ranks + 1);
        std::vector<int> out(2);
        // One element behind the beginning of one's own part.
        const auto inside = std::span(in).subspan(2 * as_index(odd) + 1, 2);
        reduce_scatter(std::span(in).first(2 * ranks), is_odd ? inside : std::span(out), reduce_op::sum, note(world));
      });
      const auto uneven = [&](std::size_t in_size, std::size_t out_size, const std::vector<std::size_t>& counts,
                              const process_group& group) {
        std::vector<int> in(in_size);
        std::vector<int> out(out_size);
        reduce_scatter(in, out, counts, reduce_op::sum, group);
      };
      const std::vector<std::size_t> good(ranks, 2);
      const std::vector<std::size_t> more(ranks + 1, 2);
      expect_fault<usage_error>(world, odd, "the input has " + std::to_string(ranks + 1) + " counts for",
                                [&](line_note& note) { uneven(2 * ranks, 2, is_odd ? more : good, note(world)); });
      expect_fault<usage_error>(world, odd, "the input has " + std::to_string(2 * ranks + 1) + " elements, its counts",
                                [&](line_note& note) { uneven(2 * ranks + (is_odd ? 1 : 0), 2, good, note(world)); });
      expect_fault<usage_error>(world, odd,
                                "the output has 3 elements, the count of rank " + std::to_string(odd) + " is 2",
                                [&](line_note& note) { uneven(2 * ranks, is_odd ? 3 : 2, good, note(world)); });
    }
  });
}

TEST_CASE("reduce_scatter: different lengths, operations or counts are an error on every rank") {
  at_every_size(
      [](const process_group& world) {
        const auto ranks = as_index(world.size());
        const int last = world.size() - 1;
        const bool is_last = world.rank() == last;
        expect_mismatch(world, 0, last, "reduce_scatter(" + std::to_string(3 * ranks) + " x int32, sum)", [&] {
          const std::size_t count = is_last ? 3 : 2;
          std::vector<int> in(ranks * count);
          std::vector<int> out(count);
          reduce_scatter(in, out);
        });
        expect_mismatch(world, 0, last, "x int32, max)", [&] {
          std::vector<int> in(ranks);
          std::vector<int> out(1);
          reduce_scatter(in, out, is_last ? reduce_op{reduce_op::max} : reduce_op::sum);
        });
        // Each rank's own arguments agree; two ranks' lists have only their sum in common.
        expect_mismatch(world, 0, last, "what differs are their lists of counts", [&] {
          std::vector<std::size_t> counts(ranks, 2);
          if (is_last) {
            counts.front() = 3;
            counts.back() = 1;
          }
          std::vector<int> in(2 * ranks);
          std::vector<int> out(counts[as_index(world.rank())]);
          reduce_scatter(in, out, counts);
        });
        // Nor are equal parts and a list of equal counts the same thing.
        expect_mismatch(world, 0, last, "reduce_scatter(", [&] {
          std::vector<int> in(2 * ranks);
          std::vector<int> out(2);
          if (is_last) {
            reduce_scatter(in, out, std::vector<std::size_t>(ranks, 2));
          } else {
            reduce_scatter(in, out);
          }
        });
      },
      2);
}

}  // namespace
