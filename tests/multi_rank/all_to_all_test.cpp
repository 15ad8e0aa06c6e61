// SPDX-License-Identifier: MIT
#include <cstddef>
#include <memory>
#include <span>
#include <stdexcept>

#include "parts.hpp"

#include <hfcomm/collectives/all_to_all.hpp>

namespace {

using namespace hfcomm;
using namespace multi_rank;

TEST_CASE("all_to_all: objects may have very different sizes") {
  at_every_size([](const process_group& world) {
    const auto length = [](int from, int to) { return as_index((from * 5 + to * 3) % 4) * (from == to ? 1 : 110'000); };
    std::vector<std::string> texts;
    std::vector<tree> trees;
    std::vector<std::vector<int>> lists;
    std::vector<bool> bits;
    for (int to = 0; to < world.size(); ++to) {
      texts.push_back(text_of(world.rank() * 10 + to, length(world.rank(), to)));
      trees.push_back(tree_of(world.rank() * 3 + to));
      lists.emplace_back(as_index(to), world.rank());
      bits.push_back((world.rank() + to) % 3 == 0);
    }
    const auto got_texts = all_to_all(texts);
    const auto got_trees = all_to_all(trees);
    const auto got_lists = all_to_all(lists);
    const auto got_bits = all_to_all(bits);
    REQUIRE(got_texts.size() == as_index(world.size()));
    for (int from = 0; from < world.size(); ++from) {
      CHECK(got_texts[as_index(from)] == text_of(from * 10 + world.rank(), length(from, world.rank())));
      CHECK((got_trees[as_index(from)] == tree_of(from * 3 + world.rank())));
      CHECK((got_lists[as_index(from)] == std::vector<int>(as_index(world.rank()), from)));
      CHECK(got_bits[as_index(from)] == ((from + world.rank()) % 3 == 0));
    }
  });
}

TEST_CASE("all_to_all: one rank may send much to one other while nobody else sends anything") {
  at_every_size([](const process_group& world) {
    const int rich = world.size() - 1;
    const int lucky = world.size() / 2;
    std::vector<std::string> texts(as_index(world.size()));
    if (world.rank() == rich) {
      texts[as_index(lucky)] = text_of(7, 3'000'001);
    }
    const auto got = all_to_all(texts);
    for (int from = 0; from < world.size(); ++from) {
      const bool something = from == rich && world.rank() == lucky;
      CHECK((got[as_index(from)] == (something ? text_of(7, 3'000'001) : std::string())));
    }
  });
}

TEST_CASE("all_to_all: objects may be move-only") {
  at_every_size([](const process_group& world) {
    std::vector<std::unique_ptr<int>> numbers;
    for (int to = 0; to < world.size(); ++to) {
      numbers.push_back(std::make_unique<int>(world.rank() * 100 + to));
    }
    const auto got = all_to_all(numbers);
    for (int from = 0; from < world.size(); ++from) {
      REQUIRE(got[as_index(from)] != nullptr);
      CHECK(*got[as_index(from)] == from * 100 + world.rank());
    }
  });
}

TEST_CASE("all_to_all: equal parts may have every length") {
  for (const int ranks : rank_counts) {
    for (const std::size_t count : part_lengths(ranks)) {
      run_noted(ranks, "count " + std::to_string(count), [&](const process_group& world) {
        std::vector<std::uint32_t> in;
        std::vector<std::uint32_t> expected;
        for (int other = 0; other < world.size(); ++other) {
          append(in, part_of(world.rank(), other, count));
          append(expected, part_of(other, world.rank(), count));
        }
        const auto untouched = in;
        std::vector<std::uint32_t> out(in.size(), 77);
        all_to_all(in, out);
        CHECK((out == expected));
        CHECK((in == untouched));
        // There and back again.
        std::vector<std::uint32_t> back(in.size());
        all_to_all(out, back);
        CHECK((back == in));
      });
    }
  }
}

TEST_CASE("all_to_all: parts may have several megabytes") {
  at_every_size([](const process_group& world) {
    const std::size_t count = 3'000'000 / as_index(world.size()) / as_index(world.size()) + 1;
    std::vector<std::uint32_t> in;
    std::vector<std::uint32_t> expected;
    for (int other = 0; other < world.size(); ++other) {
      append(in, part_of(world.rank(), other, count));
      append(expected, part_of(other, world.rank(), count));
    }
    std::vector<std::uint32_t> out(in.size());
    all_to_all(in, out);
    CHECK((out == expected));
  });
}

/// The counts of rank `from`: one of the lists, so that all ranks know them.
std::vector<std::size_t> counts_of(const std::vector<std::vector<std::size_t>>& lists, int from, std::size_t shift) {
  return lists[(as_index(from) * shift + shift) % lists.size()];
}

TEST_CASE("all_to_all: parts may be uneven") {
  for (const int ranks : rank_counts) {
    const auto lists = uneven_counts(ranks);
    for (std::size_t shift = 0; shift < lists.size(); ++shift) {
      run_noted(ranks, "shift " + std::to_string(shift), [&](const process_group& world) {
        const auto in_counts = counts_of(lists, world.rank(), shift);
        std::vector<std::size_t> out_counts;
        std::vector<std::uint32_t> in;
        std::vector<std::uint32_t> expected;
        for (int other = 0; other < world.size(); ++other) {
          out_counts.push_back(counts_of(lists, other, shift)[as_index(world.rank())]);
          append(in, part_of(world.rank(), other, in_counts[as_index(other)]));
          append(expected, part_of(other, world.rank(), out_counts.back()));
        }
        std::vector<std::uint32_t> out(expected.size(), 77);
        all_to_all(in, in_counts, out, out_counts);
        CHECK((out == expected));
      });
    }
  }
}

TEST_CASE("all_to_all: in a subgroup the parts are in that group's rank order") {
  run_noted(4, {}, [](const process_group& world) {
    const auto three = world.subgroup({3, 0, 2});
    if (three) {
      const int me = three->rank();
      const auto got = all_to_all(std::vector<std::string>{text_of(me, 1), text_of(me, 2), text_of(me, 3)}, *three);
      CHECK((got == std::vector<std::string>{text_of(0, as_index(me) + 1), text_of(1, as_index(me) + 1),
                                             text_of(2, as_index(me) + 1)}));
    }
  });
}

TEST_CASE("all_to_all: bad arguments on one rank are errors on every rank, and the group stays usable") {
  at_every_size([](const process_group& world) {
    const auto ranks = as_index(world.size());
    for (const int odd : {0, world.size() - 1}) {
      const bool is_odd = world.rank() == odd;
      expect_fault<usage_error>(
          world, odd, "the list has " + std::to_string(ranks + 1) + " objects",
          [&](line_note& note) { (void)all_to_all(std::vector<std::string>(ranks + (is_odd ? 1 : 0)), note(world)); });
      if (ranks > 1) {
        expect_fault<usage_error>(world, odd, "cannot be divided by " + std::to_string(ranks), [&](line_note& note) {
          std::vector<int> in(2 * ranks + (is_odd ? 1 : 0));
          std::vector<int> out(in.size());
          all_to_all(in, out, note(world));
        });
      }
      expect_fault<usage_error>(world, odd, "the output has " + std::to_string(2 * ranks + 1) + " elements",
                                [&](line_note& note) {
                                  std::vector<int> in(2 * ranks);
                                  std::vector<int> out(2 * ranks + (is_odd ? 1 : 0));
                                  all_to_all(in, out, note(world));
                                });
      expect_fault<usage_error>(world, odd, "the output overlaps the input", [&](line_note& note) {
        std::vector<int> in(2 * ranks);
        std::vector<int> out(2 * ranks);
        all_to_all(in, is_odd ? in : out, note(world));
      });
      expect_fault<usage_error>(world, odd, "at address 0", [&](line_note& note) {
        std::vector<int> in(2 * ranks);
        std::vector<int> out(2 * ranks);
        all_to_all(in, is_odd ? std::span<int>(static_cast<int*>(nullptr), 2 * ranks) : std::span(out), note(world));
      });
      const auto uneven = [&](std::size_t in_size, const std::vector<std::size_t>& in_counts, std::size_t out_size,
                              const std::vector<std::size_t>& out_counts, const process_group& group) {
        std::vector<int> in(in_size);
        std::vector<int> out(out_size);
        all_to_all(in, in_counts, out, out_counts, group);
      };
      const std::vector<std::size_t> good(ranks, 2);
      const std::vector<std::size_t> more(ranks + 1, 2);
      std::vector<std::size_t> huge = good;
      huge.back() = ~std::size_t{0};
      std::vector<std::size_t> own = good;
      own[as_index(odd)] = 3;
      expect_fault<usage_error>(
          world, odd, "the input has " + std::to_string(ranks + 1) + " counts for",
          [&](line_note& note) { uneven(2 * ranks, is_odd ? more : good, 2 * ranks, good, note(world)); });
      expect_fault<usage_error>(
          world, odd, "the output has " + std::to_string(ranks + 1) + " counts for",
          [&](line_note& note) { uneven(2 * ranks, good, 2 * ranks, is_odd ? more : good, note(world)); });
      expect_fault<usage_error>(
          world, odd, "the input has " + std::to_string(2 * ranks + 1) + " elements, its counts",
          [&](line_note& note) { uneven(2 * ranks + (is_odd ? 1 : 0), good, 2 * ranks, good, note(world)); });
      expect_fault<usage_error>(
          world, odd, "the output has " + std::to_string(2 * ranks + 1) + " elements, its counts",
          [&](line_note& note) { uneven(2 * ranks, good, 2 * ranks + (is_odd ? 1 : 0), good, note(world)); });
      expect_fault<usage_error>(world, odd, "whose sum no number can hold", [&](line_note& note) {
        uneven(2 * ranks, is_odd ? huge : good, 2 * ranks, good, note(world));
      });
      expect_fault<usage_error>(
          world, odd, "the part for itself has 3 elements where it is sent and 2", [&](line_note& note) {
            uneven(2 * ranks + (is_odd ? 1 : 0), is_odd ? own : good, 2 * ranks, good, note(world));
          });
    }
  });
}

TEST_CASE("all_to_all: counts that contradict each other between two ranks are an error on every rank") {
  at_every_size(
      [](const process_group& world) {
        const auto ranks = as_index(world.size());
        for (int from = 0; from < world.size(); ++from) {
          const int to = (from + 1) % world.size();
          std::vector<std::size_t> in_counts(ranks, 2);
          if (world.rank() == from) {
            in_counts[as_index(to)] = 4;
          }
          std::vector<float> in(sum_of(in_counts));
          std::vector<float> out(2 * ranks, -1);
          line_note note;
          expect_mismatch(world, from, to,
                          "rank " + std::to_string(from) + " sends 4 x float32 to rank " + std::to_string(to) +
                              ", which expects 2 x float32 from it",
                          [&] { all_to_all(in, in_counts, out, std::vector<std::size_t>(ranks, 2), note(world)); });
          CHECK((out == std::vector<float>(2 * ranks, -1)));
        }
      },
      2);
}

TEST_CASE("all_to_all: different lengths or types are an error on every rank") {
  at_every_size(
      [](const process_group& world) {
        const auto ranks = as_index(world.size());
        const int last = world.size() - 1;
        expect_mismatch(world, 0, last, "all_to_all(4 x int32)", [&] {
          std::vector<int> in(ranks * (world.rank() == last ? 4 : 2));
          std::vector<int> out(in.size());
          all_to_all(in, out);
        });
        expect_mismatch(world, 0, last, "an object of type", [&] {
          if (world.rank() == last) {
            (void)all_to_all(std::vector<int>(ranks));
          } else {
            (void)all_to_all(std::vector<long>(ranks));
          }
        });
        // Even parts and uneven ones are different things, even where the counts would fit.
        expect_mismatch(world, 0, last, "all_to_all(", [&] {
          std::vector<int> in(ranks * 2);
          std::vector<int> out(in.size());
          const std::vector<std::size_t> counts(ranks, 2);
          if (world.rank() == last) {
            all_to_all(in, counts, out, counts);
          } else {
            all_to_all(in, out);
          }
        });
      },
      2);
}

/// Whether constructing a failing_constructor throws on this thread.
bool& construction_fails() {
  thread_local bool fails = false;
  return fails;
}
struct failing_constructor {
  failing_constructor() {
    if (construction_fails()) {
      throw std::domain_error("not here");
    }
  }
  std::string text = "hello";

  template <class Archive>
  void serialize(Archive& archive) {
    archive(text);
  }
};

TEST_CASE("all_to_all: an exception of a user's type is an error on every rank and not a hang") {
  at_every_size([](const process_group& world) {
    const auto ranks = as_index(world.size());
    const int last = world.size() - 1;
    expect_fault<std::domain_error>(world, last, "cannot save this", [&](line_note& note) {
      std::vector<failing_object> list(ranks);
      list.front().fails_to_save = world.rank() == last;
      (void)all_to_all(list, note(world));
    });
    for (const std::size_t size : each_of(3, 600'000)) {
      std::vector<failing_object> list(ranks);
      for (int to = 0; to < world.size(); ++to) {
        list[as_index(to)] = {.fails_to_load = world.rank() == last && to == 0, .text = text_of(to, size)};
      }
      if (world.rank() == 0) {
        CHECK_CONTAINS(error_of<decode_error>([&] { (void)all_to_all(list); }).what(),
                       "the object from rank " + std::to_string(last));
      } else {
        const auto got = all_to_all(list);
        CHECK((got[0].text == text_of(world.rank(), size)));
      }
      check_usable(world);
    }
    // Before anything is exchanged, for the result.
    const std::vector<failing_constructor> list(ranks);
    construction_fails() = world.rank() == last;
    if (world.rank() == last) {
      CHECK_THROWS_WITH_AS((void)all_to_all(list), "not here", std::domain_error);
    } else {
      const auto problem = error_of<peer_error>([&] { (void)all_to_all(list); });
      CHECK(problem.peer() == last);
      CHECK_CONTAINS(problem.what(), "an exception ended its call before the operation began");
    }
    construction_fails() = false;
    check_usable(world);
  });
}

}  // namespace
