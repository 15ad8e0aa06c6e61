// SPDX-License-Identifier: MIT
#include "parts.hpp"
#include "random_ranks.hpp"
#include "ranks.hpp"

#include <algorithm>
#include <atomic>
#include <map>
#include <numeric>
#include <optional>
#include <span>
#include <utility>

namespace {

using namespace hfcomm;
using namespace multi_rank;

/// The operations that a rank may leave early, each as one that gives from, or to, `root`. A test calls them with small
/// and with large sizes. `check` compares what is received with what the ranks gave in operation `number`.
class rooted_calls {
 public:
  static constexpr int kinds = 11;

  /// Calls one; returns false where what this rank received is wrong.
  [[nodiscard]] static bool call(int kind, const process_group& group, int root, std::size_t count, int number,
                                 line_note* note = nullptr) {
    const process_group& here = note != nullptr ? (*note)(group) : group;
    const rooted_calls one(here, root, count, number);
    switch (kind) {
      case 0: return one.broadcast_elements();
      case 1: return one.broadcast_text();
      case 2: return one.gather_elements();
      case 3: return one.gather_texts();
      case 4: return one.reduce_elements();
      case 5: return one.reduce_texts();
      case 6: return one.scatter_elements();
      case 7: return one.scatter_texts();
      case 8: return one.gather_uneven();
      case 9: return one.scatter_uneven();
      default: return one.broadcast_list();
    }
  }
  /// Returns whether ranks leave operations of this kind: those whose lengths all ranks know.
  [[nodiscard]] static bool is_left(int kind) { return kind != 3 && kind != 5 && kind != 8; }
  /// Returns whether this rank gives in the operation, and receives nothing from another rank.
  [[nodiscard]] static bool only_gives(int kind, bool is_root) {
    const bool gathers = kind == 2 || kind == 3 || kind == 4 || kind == 5 || kind == 8;
    return gathers != is_root;
  }

 private:
  rooted_calls(const process_group& group, int root, std::size_t count, int number)
      : group_(group), root_(root), count_(count), number_(number) {}

  [[nodiscard]] bool is_root() const { return group_.rank() == root_; }
  [[nodiscard]] int element(int rank, std::size_t i) const {
    return number_ * 131 + rank * 17 + static_cast<int>(i % 1000);
  }
  [[nodiscard]] std::vector<int> elements(int rank, std::size_t count, std::size_t first = 0) const {
    std::vector<int> all(count);
    for (std::size_t i = 0; i < count; ++i) {
      all[i] = element(rank, first + i);
    }
    return all;
  }
  [[nodiscard]] std::string text(int rank) const {
    return std::to_string(number_) + '/' + text_of(rank + number_, count_);
  }

  [[nodiscard]] bool broadcast_elements() const {
    std::vector<int> data = is_root() ? elements(root_, count_) : std::vector<int>(count_);
    broadcast(data, root_, group_);
    return data == elements(root_, count_);
  }
  [[nodiscard]] bool broadcast_text() const {
    std::string data = is_root() ? text(root_) : std::string();
    broadcast(data, root_, group_);
    return data == text(root_);
  }
  [[nodiscard]] bool broadcast_list() const {
    std::vector<std::string> list(is_root() ? 2 : 0, text(root_));
    broadcast_object_list(list, root_, group_);
    return list == std::vector<std::string>(2, text(root_));
  }
  [[nodiscard]] bool gather_elements() const {
    std::vector<int> all(is_root() ? count_ * as_index(group_.size()) : 0);
    gather(elements(group_.rank(), count_), all, root_, group_);
    for (int rank = 0; is_root() && rank < group_.size(); ++rank) {
      const auto begin = all.begin() + static_cast<std::ptrdiff_t>(as_index(rank) * count_);
      if (std::vector<int>(begin, begin + static_cast<std::ptrdiff_t>(count_)) != elements(rank, count_)) {
        return false;
      }
    }
    return true;
  }
  [[nodiscard]] bool gather_texts() const {
    const auto all = gather(text(group_.rank()), root_, group_);
    for (int rank = 0; is_root() && rank < group_.size(); ++rank) {
      if (all.at(as_index(rank)) != text(rank)) {
        return false;
      }
    }
    return is_root() || all.empty();
  }
  [[nodiscard]] bool reduce_elements() const {
    const auto mine = elements(group_.rank(), count_);
    std::vector<int> sums(count_, -1);
    reduce(mine, sums, root_, reduce_op::sum, group_);
    std::vector<int> expected(count_, is_root() ? 0 : -1);
    for (int rank = 0; is_root() && rank < group_.size(); ++rank) {
      for (std::size_t i = 0; i < count_; ++i) {
        expected[i] += element(rank, i);
      }
    }
    return sums == expected;
  }
  [[nodiscard]] bool reduce_texts() const {
    const auto joined = reduce(text(group_.rank()), root_, std::plus<>(), group_);
    std::string expected;
    for (int rank = 0; rank < group_.size(); ++rank) {
      expected += text(rank);
    }
    return is_root() ? joined == expected : !joined;
  }
  [[nodiscard]] bool scatter_elements() const {
    std::vector<int> mine(count_);
    scatter(is_root() ? elements(root_, count_ * as_index(group_.size())) : std::vector<int>(), mine, root_, group_);
    return mine == elements(root_, count_, count_ * as_index(group_.rank()));
  }
  [[nodiscard]] bool scatter_texts() const {
    std::vector<std::string> list;
    for (int rank = 0; is_root() && rank < group_.size(); ++rank) {
      list.push_back(text(rank));
    }
    return scatter(list, root_, group_) == text(group_.rank());
  }
  /// Rank r has `count + r` elements.
  [[nodiscard]] std::vector<std::size_t> uneven_counts() const {
    std::vector<std::size_t> counts(as_index(group_.size()));
    std::iota(counts.begin(), counts.end(), count_);
    return counts;
  }
  [[nodiscard]] bool gather_uneven() const {
    const auto counts = uneven_counts();
    std::vector<int> all(is_root() ? std::accumulate(counts.begin(), counts.end(), std::size_t{0}) : 0);
    gather(elements(group_.rank(), counts[as_index(group_.rank())]), all, counts, root_, group_);
    auto place = all.begin();
    for (int rank = 0; is_root() && rank < group_.size(); ++rank) {
      const auto expected = elements(rank, counts[as_index(rank)]);
      if (!std::equal(expected.begin(), expected.end(), place)) {
        return false;
      }
      place += static_cast<std::ptrdiff_t>(expected.size());
    }
    return true;
  }
  [[nodiscard]] bool scatter_uneven() const {
    const auto counts = uneven_counts();
    const auto before = counts.begin() + group_.rank();
    std::vector<int> mine(*before);
    const auto total = std::accumulate(counts.begin(), counts.end(), std::size_t{0});
    scatter(is_root() ? elements(root_, total) : std::vector<int>(), mine, counts, root_, group_);
    return mine == elements(root_, mine.size(), std::accumulate(counts.begin(), before, std::size_t{0}));
  }

  const process_group& group_;
  int root_;
  std::size_t count_;
  int number_;
};

/// The counts of elements that fit into a cell, into a small slot, and neither.
constexpr std::size_t in_cell = 3;
constexpr std::size_t in_small_slot = 20;
constexpr std::size_t in_slot = 900;
constexpr std::size_t in_chunks = 60'000;

TEST_CASE("early leave: a handle has it, a copy and the group itself do not") {
  run_ranks(2, [](const process_group& world) {
    CHECK_FALSE(world.leaves_early());
    const process_group early = world.with_early_leave();
    CHECK(early.leaves_early());
    CHECK(early == world);
    CHECK_FALSE(world.leaves_early());
    CHECK_FALSE(early.with_early_leave(false).leaves_early());
    CHECK(early.with_timeout(std::chrono::seconds(1)).leaves_early());
  });
}

TEST_CASE("early leave: a rank that only gives leaves before any other rank has come") {
  for (int kind = 0; kind < rooted_calls::kinds; ++kind) {
    for (const std::size_t count : {in_cell, in_small_slot}) {
      if (!rooted_calls::is_left(kind)) {
        continue;
      }
      std::atomic<int> left{0};
      at_every_size(
          [&](const process_group& world) {
            for (int root = 0; root < world.size(); ++root) {
              const process_group early = world.with_early_leave();
              const bool is_root = world.rank() == root;
              const bool gathers = rooted_calls::only_gives(kind, false);
              const int givers = gathers ? world.size() - 1 : 1;
              // With several givers, they come one after another, when the one before has left.
              const int turn = (world.rank() - root - 1 + world.size()) % world.size();
              wait_until(
                  [&] { return left == (rooted_calls::only_gives(kind, is_root) ? (gathers ? turn : 0) : givers); });
              CHECK(rooted_calls::call(kind, early, root, count, root));
              if (rooted_calls::only_gives(kind, is_root)) {
                ++left;
              }
              barrier();
              if (is_root) {
                left = 0;
              }
              barrier();
            }
          },
          2);
    }
  }
}

TEST_CASE("early leave: 1 KiB is left, and one element more is not") {
  constexpr std::size_t longest = 1024 / sizeof(int);
  for (const int kind : {2, 4, 6}) {  // of bare elements
    for (const std::size_t count : {longest, longest + 1}) {
      std::atomic<bool> has_left{false};
      std::atomic<bool> has_come{false};
      run_ranks(2, [&](const process_group& world) {
        const int giver = rooted_calls::only_gives(kind, true) ? 0 : 1;
        const process_group early = world.with_early_leave();
        if (world.rank() != giver && count == longest) {
          wait_until([&] { return has_left.load(); });
        } else if (world.rank() != giver) {
          std::this_thread::sleep_for(std::chrono::milliseconds(5));
          has_come = true;
        }
        CHECK(rooted_calls::call(kind, early, 0, count, 1));
        if (world.rank() == giver) {
          CHECK((count == longest || has_come));
          has_left = true;
        }
        barrier();
      });
    }
  }
}

TEST_CASE("early leave: receivers of a broadcast and a scatter wait for the root alone") {
  for (const int kind : {0, 1, 6, 7, 9, 10}) {
    std::atomic<int> received{0};
    run_ranks(3, [&](const process_group& world) {
      if (world.rank() == 2) {
        wait_until([&] { return received == 1; });
      }
      CHECK(rooted_calls::call(kind, world.with_early_leave(), 0, in_small_slot, 1));
      received += world.rank() == 1 ? 1 : 0;
    });
  }
}

TEST_CASE("early leave: a rank runs ahead by as much as is promised, and further when the others have come") {
  for (const std::size_t count : {in_cell, in_small_slot}) {
    std::atomic<int> done{0};
    run_ranks(3, [&](const process_group& world) {
      const process_group early = world.with_early_leave();
      if (world.rank() != 0) {
        wait_until([&] { return done == 32; });
      }
      for (int number = 0; number < 1000; ++number) {
        CHECK(rooted_calls::call(number % 2, early, 0, count, number));
        done += world.rank() == 0 ? 1 : 0;
        // A rank that is not there stops the root.
        if (world.rank() == 1 && number == 500) {
          std::this_thread::sleep_for(std::chrono::milliseconds(2));
          CHECK(done <= 501 + 32);
        }
      }
      barrier();
    });
  }
}

TEST_CASE("early leave: longer operations wait as ever, whatever was left before") {
  for (const std::size_t count : {in_slot, in_chunks}) {
    for (int kind = 0; kind < rooted_calls::kinds; ++kind) {
      at_every_size(
          [&](const process_group& world) {
            const process_group early = world.with_early_leave();
            for (int number = 0; number < 6; ++number) {
              const int root = number % world.size();
              CHECK(rooted_calls::call(number, early, root, in_small_slot, number));
              CHECK(rooted_calls::call(kind, early, root, count, number));
              CHECK(rooted_calls::call(kind, early, (root + 1) % world.size(), in_cell, number));
            }
            check_usable(world);
          },
          2);
    }
  }
}

/// One random operation of many kinds, small or large, with any root; the same on all ranks of `group`.
void random_operation(const process_group& group, std::mt19937_64& random, int number) {
  const auto draw = [&](std::uint64_t limit) { return random() % limit; };
  const int kind = static_cast<int>(draw(rooted_calls::kinds + 5));
  const int root = static_cast<int>(draw(as_index(group.size())));
  const std::uint64_t range = draw(20);
  const std::size_t count = draw(range < 9 ? 19 : range < 17 ? 300 : range < 19 ? 3'000 : 30'000);
  if (kind < rooted_calls::kinds) {
    CHECK_MESSAGE(rooted_calls::call(kind, group, root, count, number), "kind ", kind, " with ", count);
  } else if (kind == rooted_calls::kinds) {
    barrier(group);
  } else if (kind == rooted_calls::kinds + 1) {
    std::vector<int> sums(count, number);
    all_reduce(sums, reduce_op::sum, group);
    CHECK(sums == std::vector<int>(count, number * group.size()));
  } else if (kind == rooted_calls::kinds + 2) {
    const auto all = all_gather(text_of(group.rank() + number, count), group);
    for (int rank = 0; rank < group.size(); ++rank) {
      CHECK(all[as_index(rank)] == text_of(rank + number, count));
    }
  } else if (kind == rooted_calls::kinds + 3) {
    std::vector<int> in(as_index(group.size()));
    std::iota(in.begin(), in.end(), number + group.rank() * 100);
    std::vector<int> out(in.size());
    all_to_all(in, out, group);
    for (int rank = 0; rank < group.size(); ++rank) {
      CHECK(out[as_index(rank)] == number + rank * 100 + group.rank());
    }
  } else {
    const int next = (group.rank() + 1) % group.size();
    const int before = (group.rank() + group.size() - 1) % group.size();
    CHECK(send_receive(number + group.rank(), next, before, group) == number + before);
  }
}

TEST_CASE("early leave: random operations give what they should, whichever ranks leave early") {
  const std::uint64_t seed = chosen_seed();
  INFO("HFCOMM_TEST_SEED=", seed);
  const int operations = under_thread_sanitizer ? 300 : 2000;
  for (const int ranks : rank_counts) {
    run_noted(ranks, "seed " + std::to_string(seed), [&](const process_group& world) {
      std::mt19937_64 same(seed + as_index(ranks));
      std::mt19937_64 own(seed + 1000 + as_index(world.rank()));
      const auto half = world.split(world.rank() % 2);
      for (int number = 0; number < operations; ++number) {
        // For many operations one way, so that a rank runs ahead; then each time another.
        const bool leaves = number % 400 < 200 ? (world.rank() + number / 400) % 3 != 0 : own() % 2 == 0;
        random_operation(world.with_early_leave(leaves), same, number);
        if (number % 16 == 0) {
          std::mt19937_64 there(seed + static_cast<std::uint64_t>(number));
          random_operation(half.with_early_leave(leaves), there, number);
        }
      }
      check_usable(world);
    });
  }
}

TEST_CASE("early leave: asynchronous operations leave, too") {
  at_every_size([](const process_group& world) {
    const process_group early = world.with_early_leave();
    std::vector<std::vector<int>> parts(100, std::vector<int>(5));
    std::vector<work<void>> started;
    std::vector<work<std::vector<std::string>>> texts;
    for (int number = 0; number < 100; ++number) {
      auto& part = parts[as_index(number)];
      std::fill(part.begin(), part.end(), world.rank() == 0 ? number : -1);
      started.push_back(broadcast_async(part, 0, early));
      texts.push_back(gather_async(std::to_string(world.rank() + number), 0, early));
    }
    for (int number = 0; number < 100; ++number) {
      started[as_index(number)].wait();
      CHECK(parts[as_index(number)] == std::vector<int>(5, number));
      const auto all = texts[as_index(number)].wait();
      CHECK(all.size() == (world.rank() == 0 ? as_index(world.size()) : 0));
      for (std::size_t rank = 0; rank < all.size(); ++rank) {
        CHECK(all[rank] == std::to_string(static_cast<int>(rank) + number));
      }
    }
    check_usable(world);
  });
}

/// The errors that a rank has got, each with the number of the call that threw it.
using told_errors = std::vector<std::pair<int, std::string>>;

/// Runs calls 0 to `count` - 1 and notes each mismatch_error and peer_error.
template <class Call>
told_errors errors_of_calls(int count, Call&& call) {
  told_errors told;
  for (int number = 0; number < count; ++number) {
    try {
      call(number);
    } catch (const mismatch_error& problem) {
      told.emplace_back(number, problem.what());
    } catch (const peer_error& problem) {
      CHECK_FALSE(problem.fatal());
      told.emplace_back(number, problem.what());
    }
  }
  return told;
}

TEST_CASE("early leave: a mismatch is told on both sides, with both call sites, by the next operation that waits") {
  run_ranks(3, [](const process_group& world) {
    const process_group early = world.with_early_leave();
    line_note note;
    std::vector<float> part(4);
    std::vector<float> all(12);
    std::vector<std::string> sites;
    // Rank 1 gives to another operation than the others. Nobody waits for it but rank 0.
    const auto told = errors_of_calls(3, [&](int number) {
      if (number == 0 && world.rank() == 1) {
        reduce(part, 0, reduce_op::sum, note(early));
      } else if (number == 0) {
        gather(part, all, 0, note(early));
      } else if (number == 1) {
        barrier(early);
      } else {
        sites = all_gather(note.text());
      }
    });
    REQUIRE(told.size() == (world.rank() == 0 ? 2 : 1));
    CHECK(told[0].first == (world.rank() == 0 ? 0 : 1));
    const std::string& text = told[0].second;
    REQUIRE(sites.size() == 3);
    const bool is_own = contains(text, "disagree");
    // One of ranks 1 and 2 may get the other one's failure of the barrier first.
    CHECK((is_own || contains(text, "an earlier operation of this rank failed")));
    CHECK_CONTAINS(text, "ranks 0 and 1 disagree about operation #1");
    CHECK_CONTAINS(text, "gather(4 x float32, root 0) at " + sites[0]);
    CHECK_CONTAINS(text, "reduce(4 x float32, sum, root 0) at " + sites[1]);
    if (world.rank() == 0) {
      CHECK(told[1].first == 1);
      CHECK_CONTAINS(told[1].second, "an earlier operation of this rank failed: ranks 0 and 1 disagree");
    }
    check_usable(world);
  });
}

TEST_CASE(
    "early leave: an operation that finds a mismatch of an earlier one does its work, and each rank is told once") {
  for (const bool is_list : {false, true}) {
    run_ranks(4, [&](const process_group& world) {
      const process_group early = world.with_early_leave();
      constexpr int wrong = 7;
      constexpr int calls = 200;
      std::vector<int> received;
      const auto told = errors_of_calls(calls, [&](int number) {
        if (is_list) {
          // Rank 2 expects another number than the root sends.
          const std::vector<std::size_t> counts(4, 2);
          const std::vector<int> all(8, number);
          std::vector<int> part(number == wrong && world.rank() == 2 ? 3 : 2, -1);
          try {
            scatter(all, part, counts, 0, early);
          } catch (...) {
            received.push_back(part[0]);
            throw;
          }
          received.push_back(part[0]);
          return;
        }
        int value = world.rank() == 0 ? number : -1;
        if (number == wrong && world.rank() == 2) {
          (void)gather(value, 0, early);
          received.push_back(number);
          return;
        }
        try {
          broadcast(value, 0, early);
        } catch (...) {
          received.push_back(value);
          throw;
        }
        received.push_back(value);
      });
      barrier();
      REQUIRE(told.size() == 1);
      CHECK(told[0].first >= wrong);
      CHECK(told[0].first <= wrong + 33);
      CHECK_CONTAINS(told[0].second, is_list ? "rank 0 sends 2 x int32 to rank 2, which expects 3 x int32"
                                             : "ranks 0 and 2 disagree about operation #8");
      CHECK_CONTAINS(told[0].second, "early_leave_test.cpp");
      REQUIRE(received.size() == as_index(calls));
      for (int number = 0; number < calls; ++number) {
        const bool lost = is_list ? number == told[0].first : false;
        CHECK_MESSAGE((lost || received[as_index(number)] == number), "call ", number);
      }
      check_usable(world);
    });
  }
}

TEST_CASE("early leave: a receiver that disagrees with the root is told at once, the others later, all once") {
  run_ranks(3, [](const process_group& world) {
    const process_group early = world.with_early_leave();
    const auto told = errors_of_calls(100, [&](int number) {
      if (number == 5 && world.rank() == 2) {
        double value = 1;
        broadcast(value, 0, early);
      } else {
        int value = number;
        broadcast(value, 0, early);
        CHECK(value == number);
      }
    });
    barrier();
    REQUIRE(told.size() == 1);
    CHECK((world.rank() == 2 ? told[0].first == 5 : told[0].first > 5));
    CHECK_CONTAINS(told[0].second, "ranks 0 and 2 disagree about operation #6");
    check_usable(world);
  });
}

TEST_CASE("early leave: gathers whose ranks differ in length take as many steps on all ranks") {
  at_every_size([](const process_group& world) {
    const process_group early = world.with_early_leave();
    const auto length = [&](int rank) {
      return std::size_t{rank == world.size() - 1 ? 500'000U : 10U + as_index(rank)};
    };
    for (int round = 0; round < 3; ++round) {
      const auto texts = gather(std::string(length(world.rank()), 'a'), 0, early);
      std::vector<std::size_t> counts;
      for (int rank = 0; rank < world.size(); ++rank) {
        counts.push_back(length(rank));
        CHECK((world.rank() != 0 || texts[as_index(rank)] == std::string(length(rank), 'a')));
      }
      const std::size_t total = std::accumulate(counts.begin(), counts.end(), std::size_t{0});
      std::vector<int> all(world.rank() == 0 ? total : 0, -1);
      gather(std::vector<int>(length(world.rank()), world.rank()), all, counts, 0, early);
      CHECK((world.rank() != 0 || (all.front() == 0 && all.back() == world.size() - 1)));
      const auto sum = reduce(std::string(length(world.rank()), 'b'), 0, std::plus<>(), early);
      CHECK((world.rank() != 0 || sum->size() == total));
      barrier();
    }
  });
}

TEST_CASE("early leave: objects and parts with counts among many ranks, whose lists do not fit into a small slot") {
  if (under_thread_sanitizer) {
    return;  // the same with fewer ranks
  }
  run_ranks(44, [](const process_group& world) {
    const process_group early = world.with_early_leave();
    for (int round = 0; round < 20; ++round) {
      const auto all = all_gather(text_of(world.rank() + round, 5'000));
      for (int number = 0; number < 3; ++number) {
        int value = world.rank() == 0 ? number : -1;
        broadcast(value, 0, early);
        CHECK(value == number);
      }
      const std::vector<std::size_t> counts(44, 3);
      std::vector<int> part(3, -1);
      scatter(std::vector<int>(world.rank() == 0 ? 132 : 0, round), part, counts, 0, early);
      CHECK(part == std::vector<int>(3, round));
      CHECK(all[43] == text_of(43 + round, 5'000));
    }
  });
}

TEST_CASE("early leave: a longer broadcast and scatter do their work and tell an earlier mismatch") {
  for (const bool scatters : {false, true}) {
    run_ranks(3, [&](const process_group& world) {
      const process_group early = world.with_early_leave();
      std::vector<int> received(in_slot, -1);
      const auto told = errors_of_calls(2, [&](int number) {
        if (number == 0 && world.rank() == 1) {
          (void)gather(1.5, 0, early);
        } else if (number == 0) {
          (void)gather(1, 0, early);
        } else if (scatters) {
          scatter(std::vector<int>(world.rank() == 0 ? 3 * in_slot : 0, 7), received, 0, early);
        } else {
          received.assign(in_slot, world.rank() == 0 ? 7 : -1);
          broadcast(received, 0, early);
        }
      });
      REQUIRE(told.size() == 1);
      CHECK(told[0].first == (world.rank() == 0 ? 0 : 1));
      CHECK_CONTAINS(told[0].second, "ranks 0 and 1 disagree about operation #1");
      CHECK(received == std::vector<int>(in_slot, 7));
      check_usable(world);
    });
  }
}

TEST_CASE("early leave: a scatterv whose counts differ is told on every rank") {
  run_ranks(3, [](const process_group& world) {
    const process_group early = world.with_early_leave();
    const std::vector<std::size_t> counts{1, 2, 3};
    const std::vector<int> in(6, 9);
    std::vector<int> out(world.rank() == 2 ? 4 : counts[as_index(world.rank())]);
    const auto told = errors_of_calls(2, [&](int number) {
      if (number == 0) {
        scatter(in, out, counts, 0, early);
      } else {
        barrier();
      }
    });
    REQUIRE_FALSE(told.empty());
    CHECK(told[0].first == (world.rank() == 2 ? 0 : 1));
    CHECK_CONTAINS(told[0].second, "rank 0 sends 3 x int32 to rank 2, which expects 4 x int32 from it");
    check_usable(world);
  });
}

TEST_CASE("early leave: what is missing on one rank is a peer_error on the others, those that have left later") {
  run_ranks(3, [](const process_group& world) {
    const process_group early = world.with_early_leave();
    const auto told = errors_of_calls(3, [&](int number) {
      if (number == 0 && world.rank() == 2) {
        CHECK_THROWS_AS((void)gather(1, 77, early), usage_error);
      } else if (number == 0) {
        (void)gather(1, 0, early);
      } else {
        barrier();
      }
    });
    // Rank 1 tells in the barrier that the gather failed, so rank 0 hears of it twice.
    REQUIRE(told.size() == (world.rank() == 0 ? 2 : 1));
    CHECK(told[0].first == (world.rank() == 0 ? 0 : 1));
    CHECK_CONTAINS(told[0].second, "rank 2");
    CHECK_CONTAINS(told[0].second, "77");
    check_usable(world);
  });
}

TEST_CASE("early leave: two ranks that only give do not tell each other of one error for ever") {
  run_ranks(3, [](const process_group& world) {
    const process_group early = world.with_early_leave();
    const auto told = errors_of_calls(500, [&](int number) {
      if (number == 3 && world.rank() == 1) {
        (void)gather(1.5, 0, early);
      } else {
        (void)gather(number, 0, early);
      }
    });
    CHECK(told.size() == 1);
    barrier();
    check_usable(world);
  });
}

TEST_CASE("early leave: each error of several is told by an operation of its own") {
  run_ranks(2, [](const process_group& world) {
    const process_group early = world.with_early_leave();
    const auto told = errors_of_calls(400, [&](int number) {
      if (number < 100 && world.rank() == 1) {
        (void)gather(1.5, 0, early);
      } else {
        (void)gather(number, 0, early);
      }
    });
    CHECK(told.size() == 100);
    barrier();
    check_usable(world);
  });
}

TEST_CASE("early leave: a group may end with operations that nobody has waited for") {
  run_ranks(3, [](const process_group& world) {
    for (int round = 0; round < 20; ++round) {
      const auto group = world.split(0);
      const process_group early = group.with_early_leave();
      for (int number = 0; number < 20; ++number) {
        if (number == 15 && world.rank() == 1 && round % 2 == 1) {
          (void)gather(1.5F, 2, early);  // a mismatch that the others never hear of
          continue;
        }
        try {
          (void)gather(number, 2, early);
        } catch (const mismatch_error&) {
          CHECK(round % 2 == 1);
        }
      }
    }
    check_usable(world);
  });
}

TEST_CASE("early leave: the deadline is that of the rank that is too far ahead") {
  std::atomic<bool> gave_up{false};
  run_ranks(2, [&](const process_group& world) {
    const process_group hasty = world.with_early_leave().with_timeout(std::chrono::milliseconds(100));
    if (world.rank() == 1) {
      wait_until([&] { return gave_up.load(); });
      CHECK((error_of<timeout_error>([&] { (void)gather(1, 1, hasty); }).missing() == std::vector{1}));
      return;
    }
    int done = 0;
    const auto problem = error_of<timeout_error>([&] {
      while (true) {
        (void)gather(done, 1, hasty);
        ++done;
      }
    });
    CHECK(done == 32);
    CHECK((problem.missing() == std::vector{1}));
    gave_up = true;
  });
}

TEST_CASE("early leave: a rank that leaves the group for good is missed by the next operation that waits for it") {
  run_ranks(3, [](const process_group& world) {
    std::optional<process_group> group = world.split(0);
    const process_group early = group->with_early_leave();
    group.reset();
    if (world.rank() == 1) {
      {
        const process_group last = early;
        for (int number = 0; number < 10; ++number) {
          (void)gather(number, 0, last);
        }
      }
      barrier(world);
      return;
    }
    for (int number = 0; number < 10; ++number) {
      const auto all = gather(number, 0, early);
      CHECK((world.rank() != 0 || all == std::vector<int>(3, number)));
    }
    barrier(world);
  });
  run_ranks(2, [](const process_group& world) {
    auto group = std::make_unique<process_group>(world.split(0));
    if (world.rank() == 1) {
      (void)gather(7, 0, group->with_early_leave());
      group.reset();
      barrier(world);
      return;
    }
    barrier(world);  // rank 1 has left the group
    CHECK((gather(8, 0, *group) == std::vector{8, 7}));
    CHECK(error_of<peer_error>([&] { barrier(*group); }).peer() == 1);
  });
}

}  // namespace
