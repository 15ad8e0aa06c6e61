// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <list>
#include <numeric>
#include <ranges>
#include <span>

#include "parts.hpp"

#include <hfcomm/collectives/all_gather.hpp>
#include <hfcomm/collectives/all_to_all.hpp>
#include <hfcomm/collectives/all_to_all_v.hpp>
#include <hfcomm/collectives/gather.hpp>
#include <hfcomm/collectives/reduce_scatter.hpp>
#include <hfcomm/collectives/scatter.hpp>

// The forms with `counts` of scatter, gather and all_gather; those of all_to_all and reduce_scatter are tested with
// their equal forms.
namespace {

using namespace hfcomm;
using namespace multi_rank;

/// Every rank's part, one behind the other.
std::vector<std::uint32_t> all_parts(const std::vector<std::size_t>& counts, int from, int to) {
  std::vector<std::uint32_t> all;
  for (std::size_t rank = 0; rank < counts.size(); ++rank) {
    append(all, part_of(from < 0 ? static_cast<int>(rank) : from, to < 0 ? static_cast<int>(rank) : to, counts[rank]));
  }
  return all;
}

std::size_t begin_of(const std::vector<std::size_t>& counts, int rank) {
  return std::accumulate(counts.begin(), counts.begin() + rank, std::size_t{0});
}

template <class RankMain>
void with_all_counts(RankMain rank_main) {
  for (const int ranks : rank_counts) {
    for (const auto& counts : uneven_counts(ranks)) {
      run_noted(ranks, text_of_counts(counts), [&](const process_group& world) { rank_main(world, counts); });
    }
  }
}

TEST_CASE("uneven: scatter works out of place and in place from every root") {
  with_all_counts([](const process_group& world, const std::vector<std::size_t>& counts) {
    for (int root = 0; root < world.size(); ++root) {
      const bool is_root = world.rank() == root;
      auto in = is_root ? all_parts(counts, root, -1) : std::vector<std::uint32_t>();
      const auto untouched = in;
      const std::size_t mine = counts[as_index(world.rank())];
      const auto expected = part_of(root, world.rank(), mine);
      std::vector<std::uint32_t> out(mine, 77);
      scatter(in, out, counts, root);
      CHECK((out == expected));
      std::vector<std::uint32_t> elsewhere(mine, 77);
      const auto place = is_root ? std::span(in).subspan(begin_of(counts, root), mine) : std::span(elsewhere);
      // The other ranks' counts are not looked at.
      scatter(in, place, is_root ? counts : std::vector<std::size_t>(1, 99), root);
      CHECK(std::equal(place.begin(), place.end(), expected.begin(), expected.end()));
      CHECK((in == untouched));
    }
  });
}

TEST_CASE("uneven: gather works out of place and in place to every root") {
  with_all_counts([](const process_group& world, const std::vector<std::size_t>& counts) {
    for (int root = 0; root < world.size(); ++root) {
      const bool is_root = world.rank() == root;
      const std::size_t mine = counts[as_index(world.rank())];
      const auto expected = is_root ? all_parts(counts, -1, root) : std::vector<std::uint32_t>();
      const auto in = part_of(world.rank(), root, mine);
      std::vector<std::uint32_t> out(expected.size(), 77);
      gather(in, out, counts, root);
      CHECK((out == expected));
      out.assign(out.size(), 77);
      const auto place = is_root ? std::span(out).subspan(begin_of(counts, root), mine) : std::span<std::uint32_t>();
      std::copy(in.begin(), is_root ? in.end() : in.begin(), place.begin());
      gather(is_root ? std::span<const std::uint32_t>(place) : std::span(in), out,
             is_root ? counts : std::vector<std::size_t>(1, 99), root);
      CHECK((out == expected));
    }
  });
}

TEST_CASE("uneven: all_gather works out of place and in place") {
  with_all_counts([](const process_group& world, const std::vector<std::size_t>& counts) {
    const std::size_t mine = counts[as_index(world.rank())];
    const auto expected = all_parts(counts, -1, 5);
    const auto in = part_of(world.rank(), 5, mine);
    std::vector<std::uint32_t> out(expected.size(), 77);
    all_gather(in, out, counts);
    CHECK((out == expected));
    out.assign(out.size(), 77);
    const auto place = std::span(out).subspan(begin_of(counts, world.rank()), mine);
    std::copy(in.begin(), in.end(), place.begin());
    all_gather(place, out, counts);
    CHECK((out == expected));
  });
}

TEST_CASE("uneven: one part may be longer than all slots") {
  at_every_size([](const process_group& world) {
    std::vector<std::size_t> counts(as_index(world.size()), 1);
    counts.back() = 1'300'003;
    const std::size_t mine = counts[as_index(world.rank())];
    const auto in = part_of(world.rank(), 0, mine);
    std::vector<std::uint32_t> out(sum_of(counts));
    all_gather(in, out, counts);
    CHECK((out == all_parts(counts, -1, 0)));
    std::vector<std::uint32_t> gathered(world.rank() == 0 ? out.size() : 0);
    gather(in, gathered, counts);
    CHECK((gathered == (world.rank() == 0 ? out : std::vector<std::uint32_t>())));
    std::vector<std::uint32_t> back(mine);
    scatter(gathered, back, counts);
    CHECK((back == in));
  });
}

/// Checks the errors of every uneven operation that reads counts on `odd`: `call(in_size, counts, out_size, group)`.
template <class Call>
void check_bad_counts(const process_group& world, int odd, bool all_in, Call call) {
  const auto ranks = as_index(world.size());
  const bool is_odd = world.rank() == odd;
  const std::vector<std::size_t> good(ranks, 2);
  // The length of the buffer with all parts, and of the one with one part.
  const auto run = [&](const std::vector<std::size_t>& counts, std::size_t all, std::size_t one, line_note& note) {
    call(all_in ? all : one, counts, all_in ? one : all, note(world));
  };
  expect_fault<usage_error>(world, odd, " has " + std::to_string(ranks + 1) + " counts for", [&](line_note& note) {
    run(is_odd ? std::vector<std::size_t>(ranks + 1, 2) : good, 2 * ranks, 2, note);
  });
  expect_fault<usage_error>(world, odd, " has 0 counts for", [&](line_note& note) {
    run(is_odd ? std::vector<std::size_t>() : good, 2 * ranks, 2, note);
  });
  expect_fault<usage_error>(world, odd, " has " + std::to_string(2 * ranks + 1) + " elements, its counts add up to",
                            [&](line_note& note) { run(good, 2 * ranks + (is_odd ? 1 : 0), 2, note); });
  if (ranks > 1) {
    std::vector<std::size_t> huge(ranks, ~std::size_t{0} / 2 + 1);
    expect_fault<usage_error>(world, odd, "whose sum no number can hold",
                              [&](line_note& note) { run(is_odd ? huge : good, 2 * ranks, 2, note); });
  }
}

/// Calls every operation with counts, of which rank r has r + 1 in any type.
template <class Counts>
void check_counts_of(const process_group& world, const Counts& counts) {
  const auto rank = as_index(world.rank());
  const std::size_t sum = as_index(world.size()) * (as_index(world.size()) + 1) / 2;
  const std::vector<int> mine(rank + 1, world.rank());
  std::vector<int> every;
  for (int one = 0; one < world.size(); ++one) {
    every.insert(every.end(), as_index(one) + 1, one);
  }
  std::vector<int> all(sum);
  all_gather(mine, all, counts, world);
  CHECK((all == every));
  std::vector<int> gathered(sum);
  gather(mine, gathered, counts, world);
  CHECK((world.rank() > 0 || gathered == every));
  std::vector<int> part(rank + 1);
  scatter(every, part, counts, world);
  CHECK((part == mine));
  std::fill(part.begin(), part.end(), -1);
  reduce_scatter(every, part, counts, reduce_op::max, world);
  CHECK((part == mine));
  std::vector<int> sent(sum, world.rank());
  std::vector<int> came((rank + 1) * as_index(world.size()));
  const std::vector<unsigned> from_each(as_index(world.size()), static_cast<unsigned>(rank + 1));
  all_to_all(sent, counts, came, from_each, world);
  const auto with_counts = all_to_all_v(sent, counts, world);
  CHECK((with_counts.elements == came));

  std::fill(all.begin(), all.end(), -1);
  all_gather_async(mine, all, counts, world).wait();
  CHECK((all == every));
  std::fill(gathered.begin(), gathered.end(), -1);
  gather_async(mine, gathered, counts, world).wait();
  CHECK((world.rank() > 0 || gathered == every));
  std::fill(part.begin(), part.end(), -1);
  scatter_async(every, part, counts, world).wait();
  CHECK((part == mine));
  std::fill(part.begin(), part.end(), -1);
  reduce_scatter_async(every, part, counts, reduce_op::max, world).wait();
  CHECK((part == mine));
  const auto expected = came;
  std::fill(came.begin(), came.end(), -1);
  all_to_all_async(sent, counts, came, from_each, world).wait();
  CHECK((came == expected));
  CHECK((all_to_all_v_async(sent, counts, world).get().elements == came));
}

TEST_CASE("uneven: counts are any range of integers, or integers in braces") {
  at_every_size([](const process_group& world) {
    std::vector<int> ints(as_index(world.size()));
    std::iota(ints.begin(), ints.end(), 1);
    check_counts_of(world, ints);
    check_counts_of(world, std::list<std::int64_t>(ints.begin(), ints.end()));
    check_counts_of(world, std::vector<std::size_t>(ints.begin(), ints.end()));
    check_counts_of(world, std::views::iota(1, world.size() + 1));
    check_counts_of(world, std::span(ints));
  });
  run_ranks(2, [](const process_group& world) {
    const int one = 1;
    const int two = 2;
    std::vector<int> all(3);
    all_gather(std::vector<int>(as_index(world.rank()) + 1, world.rank()), all, {one, two}, world);
    CHECK((all == std::vector<int>{0, 1, 1}));
    std::vector<int> part(as_index(world.rank()) + 1);
    scatter(all, part, {1, 2}, world);
    CHECK(part.back() == world.rank());
  });
}

TEST_CASE("uneven: a negative count is a usage_error on every rank") {
  at_every_size([](const process_group& world) {
    const std::vector<int> negative(as_index(world.size()), -2);
    std::vector<int> elements(2 * as_index(world.size()));
    for (const int odd : {0, world.size() - 1}) {
      expect_fault<usage_error>(world, odd, "counts that are negative", [&](line_note& note) {
        const std::vector<int> good(as_index(world.size()), 2);
        std::vector<int> out(elements.size());
        all_to_all(elements, world.rank() == odd ? negative : good, out, good, note(world));
      });
    }
  });
}

TEST_CASE("uneven: bad arguments on one rank are errors on every rank, and the group stays usable") {
  at_every_size([](const process_group& world) {
    const auto ranks = as_index(world.size());
    const std::vector<std::size_t> good(ranks, 2);
    for (const int odd : {0, world.size() - 1}) {
      const bool is_odd = world.rank() == odd;
      check_bad_counts(world, odd, true, [&](std::size_t in, const auto& counts, std::size_t out, const auto& group) {
        std::vector<int> from(in);
        std::vector<int> to(out);
        scatter(from, to, counts, odd, group);
      });
      check_bad_counts(world, odd, false, [&](std::size_t in, const auto& counts, std::size_t out, const auto& group) {
        std::vector<int> from(in);
        std::vector<int> to(out);
        gather(from, to, counts, odd, group);
      });
      check_bad_counts(world, odd, false, [&](std::size_t in, const auto& counts, std::size_t out, const auto& group) {
        std::vector<int> from(in);
        std::vector<int> to(out);
        all_gather(from, to, counts, group);
      });
      expect_fault<usage_error>(world, odd, "the part for itself has 2 elements where it is sent and 3",
                                [&](line_note& note) {
                                  std::vector<int> in(2 * ranks);
                                  std::vector<int> out(is_odd ? 3 : 2);
                                  scatter(in, out, good, odd, note(world));
                                });
      expect_fault<usage_error>(world, odd, "the part for itself has 3 elements where it is sent and 2",
                                [&](line_note& note) {
                                  std::vector<int> in(is_odd ? 3 : 2);
                                  std::vector<int> out(2 * ranks);
                                  gather(in, out, good, odd, note(world));
                                });
      expect_fault<usage_error>(world, odd, "the input has 3 elements, the count of rank " + std::to_string(odd),
                                [&](line_note& note) {
                                  std::vector<int> in(is_odd ? 3 : 2);
                                  std::vector<int> out(2 * ranks);
                                  all_gather(in, out, good, note(world));
                                });
      for (const int root : {-1, world.size()}) {
        expect_fault<usage_error>(world, odd, "is not a rank of this group", [&](line_note& note) {
          std::vector<int> in(2 * ranks);
          std::vector<int> out(2);
          scatter(in, out, good, is_odd ? root : odd, note(world));
        });
        expect_fault<usage_error>(world, odd, "is not a rank of this group", [&](line_note& note) {
          std::vector<int> in(2);
          std::vector<int> out(2 * ranks);
          gather(in, out, good, is_odd ? root : odd, note(world));
        });
      }
      // Beginning one element behind one's own part.
      expect_fault<usage_error>(world, odd, "overlaps", [&](line_note& note) {
        std::vector<int> all(2 * ranks + 1);
        std::vector<int> out(2);
        const auto inside = std::span(all).subspan(2 * as_index(odd) + 1, 2);
        scatter(std::span(all).first(2 * ranks), is_odd ? inside : std::span(out), good, odd, note(world));
      });
      expect_fault<usage_error>(world, odd, "overlaps", [&](line_note& note) {
        std::vector<int> all(2 * ranks + 1);
        const std::vector<int> in(2);
        const auto inside = std::span<const int>(all).subspan(2 * as_index(odd) + 1, 2);
        gather(is_odd ? inside : std::span(in), std::span(all).first(2 * ranks), good, odd, note(world));
      });
      expect_fault<usage_error>(world, odd, "overlaps", [&](line_note& note) {
        std::vector<int> all(2 * ranks + 1);
        const std::vector<int> in(2);
        const auto inside = std::span<const int>(all).subspan(2 * as_index(odd) + 1, 2);
        all_gather(is_odd ? inside : std::span(in), std::span(all).first(2 * ranks), good, note(world));
      });
      expect_fault<usage_error>(world, odd, "at address 0", [&](line_note& note) {
        const std::span<int> nowhere(static_cast<int*>(nullptr), 2);
        std::vector<int> in(2);
        std::vector<int> out(2 * ranks);
        all_gather(is_odd ? nowhere : std::span(in), out, good, note(world));
      });
      expect_fault<usage_error>(world, odd, "at address 0", [&](line_note& note) {
        const std::span<int> nowhere(static_cast<int*>(nullptr), 2 * ranks);
        std::vector<int> in(2);
        std::vector<int> out(2 * ranks);
        gather(in, is_odd ? nowhere : std::span(out), good, odd, note(world));
      });
    }
  });
}

TEST_CASE("uneven: counts that contradict what a rank sends are an error on every rank") {
  at_every_size(
      [](const process_group& world) {
        const auto ranks = as_index(world.size());
        const std::vector<std::size_t> counts(ranks, 2);
        for (int root = 0; root < world.size(); ++root) {
          const int odd = (root + 1) % world.size();
          const std::size_t mine = world.rank() == odd ? 5 : 2;
          std::vector<double> all(2 * ranks, -1);
          std::vector<double> some(mine, -1);
          expect_mismatch(world, root, odd,
                          "rank " + std::to_string(root) + " sends 2 x float64 to rank " + std::to_string(odd) +
                              ", which expects 5 x float64",
                          [&] { scatter(all, some, counts, root); });
          expect_mismatch(world, odd, root,
                          "rank " + std::to_string(odd) + " sends 5 x float64 to rank " + std::to_string(root) +
                              ", which expects 2 x float64",
                          [&] { gather(some, all, counts, root); });
          CHECK((all == std::vector<double>(2 * ranks, -1)));
          CHECK((some == std::vector<double>(mine, -1)));
        }
        // Counts that every rank passes must be the same.
        const int last = world.size() - 1;
        expect_mismatch(world, 0, last, "what differs are their lists of counts", [&] {
          std::vector<std::size_t> mine = counts;
          if (world.rank() == last) {
            mine.front() = 1;
            mine.back() = 3;
          }
          const std::vector<int> in(mine[as_index(world.rank())]);
          std::vector<int> out(2 * ranks);
          // Each rank's own arguments fit together, and both lists have the same sum.
          all_gather(in, out, mine);
        });
      },
      2);
}

TEST_CASE("uneven: the form with counts does not match the equal form") {
  at_every_size(
      [](const process_group& world) {
        const auto ranks = as_index(world.size());
        const int last = world.size() - 1;
        const std::vector<std::size_t> counts(ranks, 2);
        std::vector<int> one(2);
        std::vector<int> all(2 * ranks);
        const bool is_last = world.rank() == last;
        expect_mismatch(world, 0, last, "scatter(", [&] { is_last ? scatter(all, one, counts) : scatter(all, one); });
        expect_mismatch(world, 0, last, "gather(", [&] { is_last ? gather(one, all, counts) : gather(one, all); });
        expect_mismatch(world, 0, last, "all_gather(",
                        [&] { is_last ? all_gather(one, all, counts) : all_gather(one, all); });
      },
      2);
}

TEST_CASE("uneven: in a subgroup the parts are in that group's rank order") {
  run_noted(4, {}, [](const process_group& world) {
    const auto three = world.subgroup({3, 0, 2});
    if (three) {
      const std::vector<std::size_t> counts{1, 0, 2};
      const std::vector<int> in(counts[as_index(three->rank())], three->rank());
      std::vector<int> out(3);
      all_gather(in, out, counts, *three);
      CHECK((out == std::vector{0, 2, 2}));
      std::vector<int> there(three->rank() == 2 ? 3 : 0);
      gather(in, there, counts, 2, *three);
      CHECK((there == (three->rank() == 2 ? out : std::vector<int>())));
    }
  });
}

}  // namespace
