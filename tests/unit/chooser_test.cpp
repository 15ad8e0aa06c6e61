// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include <doctest/doctest.h>

#include "../sanitizers.hpp"

#include <hfcomm/engine/chooser.hpp>

namespace {

namespace chooser_tests {

using namespace hfcomm::engines;

constexpr std::uint64_t unlimited = std::numeric_limits<std::uint64_t>::max();

/// A chooser whose candidates cost what is known, each use of which is measured.
struct known_costs {
  chooser one;
  std::vector<use_cost> costs;  // of each candidate, in its row's uncounted uses twice as much
  chooser::use before = {};
  std::int64_t lost = 0;  // by the last use whose cost has been told

  /// Does one use; returns it.
  chooser::use run(std::uint64_t affordable = unlimited, bool hurries = false) {
    const chooser::use next = one.next(affordable, hurries);
    tell();
    one.start(next, affordable);
    before = next;
    return next;
  }
  /// Tells what the last use has cost. Returns what it has lost.
  std::int64_t tell() {
    const bool is_cold = before.place >= 0 && before.place < chooser::uncounted;
    const chooser::use done = before;
    before = {};
    lost = done.candidate < 0 ? 0 : one.add(done, costs[static_cast<std::size_t>(done.candidate)] * (is_cold ? 2 : 1));
    return lost;
  }
  /// Returns the candidates of the next rows, of so many uses.
  std::vector<int> rows(int uses, bool hurries = false) {
    std::vector<int> found;
    for (int number = 0; number < uses; ++number) {
      if (const chooser::use next = run(unlimited, hurries); next.place == 0) {
        found.push_back(next.candidate);
      }
    }
    return found;
  }
};

constexpr int row_length = chooser::uncounted + chooser::counted;
/// Uses until so many candidates have had their first row, and one leads. Costs are told one use later.
constexpr int first_round(int others) { return chooser::first_uses + (others + 1) * (row_length + 1) + 1; }

TEST_CASE("chooser: candidates have rows in turn, whose first uses do not count, and the quickest one leads") {
  known_costs known{chooser(0b1011, 3), {200, 100, 1, 150}};
  CHECK(known.one.leader() == 3);
  CHECK(known.one.cost() == unknown_cost);
  CHECK(known.rows(first_round(2)) == std::vector{1, 0});
  CHECK(known.one.leader() == 1);
  CHECK(known.one.cost() == doctest::Approx(100).epsilon(0.02));
  CHECK(known.one.is_likely());
  CHECK_FALSE(known.one.is_settled());
  known.rows(8000);
  CHECK(known.one.is_settled());
  CHECK(known.one.leader() == 1);
}

TEST_CASE("chooser: after a change of the leader, a candidate waits as long as it loses to the new one") {
  known_costs known{chooser(0b111, 0), {300, 100, 250}};
  CHECK(known.rows(first_round(2)) == std::vector{1, 2});
  CHECK(known.one.leader() == 1);
  CHECK(known.rows(1000).empty());  // a row of 2 loses 10.5 uses, of which a hundredth is due after 1050
  CHECK(known.rows(200) == std::vector{2});
  CHECK(known.rows(300) == std::vector{0});  // 14 uses
}

TEST_CASE("chooser: what a candidate loses is limited, however slow it was at first") {
  known_costs known{chooser(0b11, 0, 0b10), {100, 1500}};
  CHECK(known.rows(first_round(1) + chooser::uncounted_if_slow) == std::vector{1});
  known.costs[1] = 90;
  known.rows(100 * (16 + 10));  // a row ends where it has lost 16 uses
  CHECK(known.one.leader() == 1);
}

TEST_CASE("chooser: a slow starter has longer rows, whose longer beginning does not count") {
  known_costs known{chooser(0b11, 0, 0b10), {100, 90}};
  int uses = 0;
  for (int number = 0; number < first_round(1) + chooser::uncounted_if_slow; ++number) {
    uses += known.run().place >= 0 ? 1 : 0;
  }
  CHECK(uses == chooser::uncounted_if_slow + chooser::counted);
  CHECK(known.one.leader() == 1);
}

TEST_CASE("chooser: what is slower is tried more rarely, and looking takes half a per cent of the time at most") {
  known_costs known{chooser(0b1111, 0), {100, 103, 110, 200}};
  known.rows(20'000);
  REQUIRE(known.one.is_settled());
  std::vector<int> counts(4);
  std::int64_t lost = 0;
  constexpr int uses = 200'000;
  for (int number = 0; number < uses; ++number) {
    const chooser::use next = known.run();
    counts[static_cast<std::size_t>(next.candidate)] += next.place == 0 ? 1 : 0;
    lost += known.lost;
  }
  CHECK(counts[1] > counts[2]);
  CHECK(counts[2] > counts[3]);
  CHECK(counts[3] > 10);
  CHECK(lost > 0);
  CHECK(lost < uses / 200 * 100);
}

TEST_CASE("chooser: the first row does not count where the next one is far from it") {
  known_costs known{chooser(0b11, 0), {100, 150}};  // such as while pages are touched for the first time
  known.rows(first_round(1));
  CHECK(known.one.leader() == 0);
  known.costs[1] = 95;
  CHECK(known.rows(700) == std::vector{1});
  CHECK(known.one.leader() == 1);
}

TEST_CASE("chooser: a leader that has become more than twice as slow is soon given up") {
  known_costs known{chooser(0b11, 0), {100, 120}};
  known.rows(50'000);
  CHECK(known.one.leader() == 0);
  known.costs = {500, 120};
  known.rows(3 * chooser::counted + 2 * first_round(1));
  CHECK(known.one.leader() == 1);
  CHECK(known.one.cost() == doctest::Approx(120).epsilon(0.05));
}

TEST_CASE("chooser: a single candidate is settled, and nothing is tried") {
  known_costs known{chooser(0b100, 2), {0, 0, 70}};
  CHECK(known.one.is_settled());
  CHECK(known.rows(100).empty());
  CHECK(known.one.cost() == 70);
}

TEST_CASE("chooser: what cannot be afforded waits, and a row that loses more ends early") {
  known_costs known{chooser(0b11, 0), {1000, 100'000}};
  for (int number = 0; number < 50; ++number) {
    CHECK(known.run(1900).place < 0);  // a row is expected to lose two uses
  }
  int tries = 0;
  std::int64_t lost = 0;
  for (chooser::use next = known.run(10'000); next.place >= 0; next = known.run(10'000)) {
    ++tries;
    lost += known.tell();
  }
  CHECK(tries == 3);
  CHECK(lost == 9000);  // a use counts as four times the usual cost at most
  CHECK(known.one.leader() == 0);
}

TEST_CASE("chooser: what another one has found slower is tried later, and trust lets the leader be") {
  known_costs known{chooser(0b111, 0), {100, 101, 300}};
  known.rows(3000);
  known_costs later{chooser(0b111, 0), {100, 101, 300}};
  later.one.expect(known.one);
  CHECK(later.rows(first_round(1)) == std::vector{1});
  CHECK(later.one.is_likely());
  const std::vector<int> rows = later.rows(2000);
  CHECK(std::count(rows.begin(), rows.end(), 2) > 0);

  known_costs trusting{chooser(0b111, 0), {100, 90, 300}};
  trusting.one.trust();
  CHECK(trusting.one.is_likely() == false);  // its cost is not known yet
  CHECK(trusting.rows(700).empty());
  trusting.rows(300);
  CHECK(trusting.one.leader() == 1);
}

TEST_CASE("chooser: in a hurry rows follow one another until all are settled") {
  known_costs known{chooser(0b111, 0), {100, 101, 300}};
  CHECK(known.rows(200, true).size() == 8);
  CHECK(known.one.is_settled());
  CHECK(known.rows(1000, true).empty());
}

TEST_CASE("chooser: a use that is not started changes nothing, and an unknown cost ends a row") {
  known_costs known{chooser(0b11, 0), {100, 90}};
  while (known.one.next(unlimited, false).place < 0) {
    known.run();
  }
  CHECK(known.one.next(unlimited, false).place == 0);
  CHECK(known.one.next(unlimited, false).place == 0);
  known.run();
  CHECK(known.one.add(known.before, unknown_cost) == 0);
  known.before = {};
  CHECK(known.one.leader() == 0);
  CHECK(known.one.next(unlimited, false).place == 0);  // it is tried again
}

TEST_CASE("chooser: one without a candidate begins anew, with another leader where that one led") {
  known_costs known{chooser(0b1101, 3), {100, 0, 90, 120}};
  known.rows(first_round(2));
  REQUIRE(known.one.leader() == 2);
  CHECK(known.one.without(0, 3).leader() == 2);
  const chooser other = known.one.without(2, 3);
  CHECK(other.leader() == 3);
  CHECK(other.cost() == unknown_cost);
  CHECK_FALSE(other.has(2));
  CHECK(other.has(0));
}

TEST_CASE("chooser: costs that are thousands of times apart") {
  known_costs known{chooser(0b11, 0), {50'000'000, 1}};
  known.rows(first_round(1));
  CHECK(known.one.leader() == 1);
  CHECK(known.rows(100).size() <= 2);
}

/// Candidates with random costs, whose measurements have noise.
struct simulation {
  std::mt19937_64 random;
  double noise;

  struct outcome {
    double excess;           // by which what leads costs more than the best, in parts of it
    double share_of_budget;  // the highest loss, of what it may be then
  };

  /// Runs one case of so many nanoseconds.
  outcome run(double duration) {
    std::uniform_real_distribution<double> uniform;
    std::normal_distribution<double> normal;
    std::vector<double> costs(2 + random() % 5);
    std::generate(costs.begin(), costs.end(), [&] { return 2e5 * std::exp2(1.6 * uniform(random)); });
    const double best = *std::min_element(costs.begin(), costs.end());
    const double nanoseconds = 20e3 * std::exp2(8 * uniform(random)) / best;  // 20 us to 5 ms for the best
    chooser one((1U << costs.size()) - 1, static_cast<int>(random() % costs.size()));
    chooser::use before;  // its cost is told one use later
    use_cost cost = unknown_cost;
    double time = 0;
    double lost = 0;
    double share = 0;
    while (time < duration) {
      const double budget = std::max(20e6, time / 100);
      const auto affordable = static_cast<std::uint64_t>(std::max(0.0, budget - lost) / nanoseconds);
      const chooser::use next = one.next(affordable, false);
      lost = std::max(0.0, lost + static_cast<double>(one.add(before, cost)) * nanoseconds);
      // Later uses are measured once in 500 us, but no less than once in 64 uses.
      const double usual = costs[static_cast<std::size_t>(one.leader())] * nanoseconds;
      const int unmeasured = !one.is_curious() && next.place < 0 ? static_cast<int>(std::min(63.0, 500e3 / usual)) : 0;
      one.start(next, affordable, static_cast<unsigned>(unmeasured));
      const double taken = costs[static_cast<std::size_t>(next.candidate)] * std::exp(noise * normal(random));
      before = next;
      cost = static_cast<use_cost>(taken);
      time += taken * nanoseconds + unmeasured * usual;
      const double under_way = 16 * usual;  // two uses, and the leader's after a row, as far as they count
      share = std::max(share, (lost - under_way) / budget);
    }
    return {costs[static_cast<std::size_t>(one.leader())] / best - 1, share};
  }
};

TEST_CASE("chooser: with noise it picks a candidate within 3 % of the best, within its budget") {
  struct limit {
    double noise;
    int good;  // per cent
  };
  constexpr int all =
      under_thread_sanitizer || under_address_sanitizer ? 500 : 10'000;  // they take ten times as long there
  for (const limit& wanted : {limit{0.05, 99}, limit{0.2, 97}, limit{0.5, 90}}) {
    CAPTURE(wanted.noise);
    simulation cases{.random = std::mt19937_64(7), .noise = wanted.noise};
    int good = 0;
    double share = 0;
    for (int number = 0; number < all; ++number) {
      const simulation::outcome found = cases.run(5e9);
      good += found.excess <= 0.03 ? 1 : 0;
      share = std::max(share, found.share_of_budget);
    }
    CHECK(100 * good >= wanted.good * all);
    CHECK(share <= 1.0);
    MESSAGE(good << " of " << all << " are good, the highest loss is " << share << " of the budget");
  }
}

}  // namespace chooser_tests

}  // namespace
