// SPDX-License-Identifier: MIT
#include "parts.hpp"

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include <hfcomm/collectives/all_gather_v.hpp>
#include <hfcomm/collectives/all_to_all_v.hpp>
#include <hfcomm/collectives/gather_v.hpp>

namespace {

using namespace hfcomm;
using namespace multi_rank;

/// Checks elements that were collected from all ranks, of which rank r contributed `counts[r]`.
void check_collected(const received_parts<std::uint32_t>& parts, const std::vector<std::size_t>& counts) {
  CHECK((parts.counts == counts));
  std::vector<std::uint32_t> expected;
  for (std::size_t rank = 0; rank < counts.size(); ++rank) {
    const auto part = part_of(static_cast<int>(rank), 0, counts[rank]);
    CHECK(same_bits(parts.part(static_cast<int>(rank)), part));
    append(expected, part);
  }
  CHECK(same_bits(parts.elements, expected));
}

TEST_CASE("all_gather_v, gather_v: they return parts of any length and their counts") {
  for (const int ranks : rank_counts) {
    for (const auto& counts : uneven_counts(ranks)) {
      run_noted(ranks, text_of_counts(counts), [&](const process_group& world) {
        const auto mine = part_of(world.rank(), 0, counts[as_index(world.rank())]);
        check_collected(all_gather_v(mine, world), counts);
        const int root = world.size() / 2;
        const auto gathered = gather_v(mine, root, world);
        if (world.rank() == root) {
          check_collected(gathered, counts);
        } else {
          CHECK(gathered.counts.empty());
          CHECK(gathered.elements.empty());
        }
        auto shared = world.allocate<std::uint32_t>(mine.size());
        std::copy(mine.begin(), mine.end(), shared.begin());
        check_collected(all_gather_v(shared, world), counts);
        auto started = all_gather_v_async(std::span(mine), world);
        auto started_gather = gather_v_async(std::span(mine), root, world);
        CHECK(started_gather.wait().elements.size() == (world.rank() == root ? sum_of(counts) : 0));
        check_collected(started.wait(), counts);
      });
    }
  }
}

TEST_CASE("all_to_all_v: it returns what the ranks sent to this one, in parts of any length, and their counts") {
  for (const int ranks : rank_counts) {
    for (const std::size_t length : part_lengths(ranks)) {
      run_noted(ranks, std::to_string(length) + " elements", [&](const process_group& world) {
        const auto count_of = [&](int from, int to) { return (from + 2 * to) % 3 == 0 ? std::size_t{0} : length; };
        std::vector<std::uint32_t> in;
        std::vector<std::size_t> counts;
        std::vector<std::size_t> expected_counts;
        std::vector<std::uint32_t> expected;
        for (int other = 0; other < world.size(); ++other) {
          counts.push_back(count_of(world.rank(), other));
          append(in, part_of(world.rank(), other, counts.back()));
          expected_counts.push_back(count_of(other, world.rank()));
          append(expected, part_of(other, world.rank(), expected_counts.back()));
        }
        const auto parts = all_to_all_v(in, counts, world);
        CHECK((parts.counts == expected_counts));
        CHECK(same_bits(parts.elements, expected));
        const auto again = all_to_all_v_async(std::span(in), counts, world).wait();
        CHECK((again.counts == expected_counts));
        CHECK(same_bits(again.elements, expected));
      });
    }
  }
}

TEST_CASE("received_parts: bad arguments on one rank are errors on every rank") {
  at_every_size([](const process_group& world) {
    const int odd = world.size() - 1;
    const bool wrong = world.rank() == odd;
    const std::vector<int> data(as_index(world.size()), 1);
    const std::span<const int> nowhere(static_cast<const int*>(nullptr), 3);
    expect_fault<usage_error>(world, odd, "a buffer of 3 elements is at address 0", [&](line_note& note) {
      (void)all_gather_v(wrong ? nowhere : std::span(data), note(world));
    });
    expect_fault<usage_error>(world, odd, "a buffer of 3 elements is at address 0", [&](line_note& note) {
      (void)gather_v(wrong ? nowhere : std::span(data), 0, note(world));
    });
    expect_fault<usage_error>(world, odd, "is not a rank of this group",
                              [&](line_note& note) { (void)gather_v(data, wrong ? world.size() : 0, note(world)); });
    std::vector<std::size_t> counts(as_index(world.size()), 1);
    if (wrong) {
      counts.front() = 2;
    }
    expect_fault<usage_error>(world, odd, "its counts add up to",
                              [&](line_note& note) { (void)all_to_all_v(data, counts, note(world)); });
    counts.resize(wrong ? as_index(world.size()) + 1 : as_index(world.size()), 1);
    expect_fault<usage_error>(world, odd, "counts for",
                              [&](line_note& note) { (void)all_to_all_v(data, counts, note(world)); });
  });
}

TEST_CASE("received_parts: elements of different types, and other operations, are a mismatch_error") {
  at_every_size(
      [](const process_group& world) {
        const bool odd = world.rank() == 0;
        const std::vector<int> numbers(2, 1);
        const std::vector<float> floats(3, 1.0F);
        const auto types =
            error_of<mismatch_error>([&] { odd ? (void)all_gather_v(numbers) : (void)all_gather_v(floats); });
        CHECK_CONTAINS(types.what(), "all_gather_v(2 x int32 in uneven parts)");
        CHECK_CONTAINS(types.what(), "all_gather_v(3 x float32 in uneven parts)");
        std::vector<int> out(2 * as_index(world.size()));
        const std::vector<std::size_t> counts(as_index(world.size()), 2);
        CHECK_THROWS_AS(odd ? (void)all_gather_v(numbers) : all_gather(numbers, out, counts), mismatch_error);
        CHECK_THROWS_AS(odd ? (void)gather_v(numbers) : (void)gather_v(numbers, 1), mismatch_error);
        check_usable(world);
      },
      2);
}

TEST_CASE("received_parts: a rank without memory throws, and the others get their elements") {
  for (const std::size_t length : each_of(1, 300'000)) {
    at_every_size([&](const process_group& world) {
      const bool poor = world.rank() == world.size() - 1;
      std::vector<std::uint32_t> elements;
      const auto memory = [&](std::span<const std::size_t> /*counts*/, std::size_t sum) {
        if (poor) {
          throw std::bad_alloc();
        }
        elements.assign(sum, 0);
        return std::as_writable_bytes(std::span(elements));
      };
      const std::vector<std::uint32_t> mine(length * as_index(world.size()), 7);
      const std::vector<std::size_t> counts(as_index(world.size()), length);
      const auto in = detail::elements_of(mine);
      const auto call_of = [&] {
        return detail::uneven_call<std::uint32_t>("collect", engines::movement::to_all, mine.size(), -1,
                                                  std::source_location::current());
      };
      const auto check = [&](std::size_t count, auto call) {
        if (poor) {
          CHECK_THROWS_AS(call(), std::bad_alloc);
        } else {
          call();
          CHECK((elements == std::vector<std::uint32_t>(count, 7)));
        }
        check_usable(world);
      };
      check(mine.size() * as_index(world.size()), [&] { detail::collect_parts(call_of(), in, memory, world); });
      check(mine.size(), [&] { detail::exchange_parts(call_of(), in, counts, memory, world); });
    });
  }
}

TEST_CASE("received_parts: without init a rank gets its own elements") {
  const std::vector<int> mine{1, 2, 3};
  const std::vector<std::size_t> counts{3};
  for (const auto& parts : {all_gather_v(mine), gather_v(mine), all_to_all_v(mine, counts)}) {
    CHECK((parts.elements == mine));
    CHECK((parts.counts == counts));
    CHECK(same_bits(parts.part(0), mine));
  }
}

}  // namespace
