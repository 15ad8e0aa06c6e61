// SPDX-License-Identifier: MIT
#include "ranks.hpp"

#include <atomic>
#include <map>
#include <memory>
#include <optional>

#include <hfcomm/scopes/master_only.hpp>
#include <hfcomm/scopes/on_rank.hpp>

namespace {

using namespace hfcomm;
using namespace multi_rank;

/// Cannot be copied, only moved.
struct move_only_value {
  std::unique_ptr<int> number;
  template <class Archive>
  void serialize(Archive& archive) {
    archive(number);
  }
};

/// Its serialization throws.
struct unserializable_value {
  template <class Archive>
  void save(Archive& /*archive*/) const {
    throw std::domain_error("I stay here");
  }
  template <class Archive>
  void load(Archive& /*archive*/) {}
};

TEST_CASE("master_only: rank 0 alone runs it and has the value") {
  for (const int ranks : rank_counts) {
    std::atomic<int> runs{0};
    run_noted(ranks, {}, [&](const process_group& world) {
      const bool master = world.rank() == 0;
      const std::optional<std::string> value = master_only([&] { return ++runs, std::string("x"); });
      CHECK(value.has_value() == master);
      CHECK(value.value_or("none") == (master ? "x" : "none"));
      const bool ran = master_only([&] { ++runs; });
      CHECK(ran == master);
      // In a group that is turned around, the world's last rank is the master.
      const auto turned = world.split(0, -world.rank());
      CHECK(master_only([&] { ++runs; }, turned) == (world.rank() == world.size() - 1));
    });
    CHECK(runs == 3);
  }
}

TEST_CASE("master_only: values may be references, move-only or optional") {
  at_every_size([](const process_group& world) {
    const bool master = world.rank() == 0;
    std::string name = "a";
    auto copy = master_only([&]() -> std::string& { return name; });
    static_assert(std::is_same_v<decltype(copy), std::optional<std::string>>);
    name = "b";
    CHECK(copy.value_or("a") == "a");
    const auto moved = master_only([] { return std::make_unique<int>(3); });
    CHECK(moved.has_value() == master);
    CHECK((!moved || **moved == 3));
    const auto nothing = master_only([] { return std::optional<int>(); });
    CHECK(nothing.has_value() == master);
    CHECK((!nothing || !nothing->has_value()));
  });
}

TEST_CASE("master_only: the others do not wait, and an exception stays on the master") {
  at_every_size([](const process_group& world) {
    const auto call = [] { (void)master_only([]() -> int { throw std::domain_error("mine"); }); };
    if (world.rank() == 0) {
      (void)error_of<std::domain_error>(call);
    } else {
      call();
    }
    check_usable(world);
  });
}

TEST_CASE("on_rank: only the given rank runs it and has the value") {
  for (const int ranks : rank_counts) {
    std::atomic<int> runs{0};
    run_noted(ranks, {}, [&](const process_group& world) {
      for (int chosen = 0; chosen < world.size(); ++chosen) {
        const bool me = world.rank() == chosen;
        const std::optional<int> value = on_rank(chosen, [&] { return ++runs, chosen; });
        CHECK(value.has_value() == me);
        CHECK(value.value_or(-1) == (me ? chosen : -1));
        const auto turned = world.split(0, -world.rank());
        CHECK(on_rank(chosen, [&] { ++runs; }, turned) == (turned.rank() == chosen));
      }
    });
    CHECK(runs == 2 * ranks);
  }
}

TEST_CASE("on_rank: a rank outside the group is an error on every rank") {
  at_every_size([](const process_group& world) {
    for (const int wrong : {-1, world.size(), 1000}) {
      bool ran = false;
      line_note note;
      const auto problem = error_of<usage_error>([&] { (void)on_rank(wrong, [&] { ran = true; }, note(world)); });
      CHECK_FALSE(ran);
      CHECK(problem.rank() == world.rank());
      CHECK_CONTAINS(problem.what(), note.text());
      CHECK_CONTAINS(problem.what(), "rank " + std::to_string(wrong) + " is not a rank of this group of");
      check_usable(world);
    }
  });
}

TEST_CASE("run_master_only: every rank gets the master's value") {
  for (const int ranks : rank_counts) {
    std::atomic<int> runs{0};
    run_noted(ranks, {}, [&](const process_group& world) {
      CHECK(run_master_only([&] { return ++runs; }) == 1);
      const std::map<std::string, std::vector<int>> expected{{"a", {1, 2, 3}}, {"b", {}}};
      CHECK((run_master_only([&] { return ++runs, expected; }) == expected));
      const std::string large = text_of(0, 1'000'003);
      CHECK((run_master_only([&] { return ++runs, large; }) == large));
      const auto moved = run_master_only([&] { return move_only_value{std::make_unique<int>(++runs)}; });
      REQUIRE(moved.number != nullptr);
      CHECK(*moved.number == 4);
      // The master of a group is the group's rank 0.
      const auto turned = world.split(0, -world.rank());
      CHECK(run_master_only([&] { return ++runs, world.rank(); }, turned) == world.size() - 1);
      check_usable(world);
    });
    CHECK(runs == 5);
  }
}

TEST_CASE("run_master_only: without a value the others still wait for the master") {
  for (const int ranks : rank_counts) {
    std::atomic<int> runs{0};
    run_noted(ranks, {}, [&](const process_group& world) {
      run_master_only([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        ++runs;
      });
      CHECK(runs == 1);
      check_usable(world);
    });
  }
}

TEST_CASE("run_master_only: an exception reaches every rank") {
  for (const int ranks : rank_counts) {
    std::atomic<int> runs{0};
    run_noted(ranks, {}, [&](const process_group& world) {
      const auto fail = [&]() -> int {
        ++runs;
        throw std::domain_error("the mirror is down");
      };
      for (const bool with_value : {false, true}) {
        line_note note;
        const auto call = [&] {
          if (with_value) {
            (void)run_master_only(fail, note(world));
          } else {
            run_master_only([&] { (void)fail(); }, note(world));
          }
        };
        if (world.rank() == 0) {
          CHECK(error_of<std::domain_error>(call).what() == std::string("the mirror is down"));
        } else {
          const auto problem = error_of<peer_error>(call);
          CHECK(problem.peer() == 0);
          CHECK_FALSE(problem.fatal());
          CHECK_CONTAINS(problem.what(), "the mirror is down");
          CHECK_CONTAINS(problem.what(), note.text());
        }
        check_usable(world);
      }
    });
    CHECK(runs == 2);
  }
}

TEST_CASE("run_master_only: a value that cannot be serialized is an error on every rank") {
  at_every_size(
      [](const process_group& world) {
        const auto call = [] { (void)run_master_only([] { return unserializable_value(); }); };
        if (world.rank() == 0) {
          CHECK(error_of<std::domain_error>(call).what() == std::string("I stay here"));
        } else {
          CHECK_CONTAINS(error_of<peer_error>(call).what(), "I stay here");
        }
        check_usable(world);
      },
      1);
}

TEST_CASE("run_master_only: an operation of the same group inside is a usage_error") {
  at_every_size([](const process_group& world) {
    const int value = run_master_only([&] {
      CHECK_CONTAINS(error_of<usage_error>([] { barrier(); }).what(), "master-first section");
      CHECK_CONTAINS(error_of<usage_error>([] { (void)run_master_only([] { return 1; }); }).what(),
                     "master-first section");
      return 7;
    });
    CHECK(value == 7);
    check_usable(world);
    // Uncaught, it is an exception like any other.
    const auto call = [] { (void)run_master_only([] { return barrier(), 1; }); };
    if (world.rank() == 0) {
      CHECK_CONTAINS(error_of<usage_error>(call).what(), "master-first section");
    } else {
      CHECK_CONTAINS(error_of<peer_error>(call).what(), "master-first section");
    }
    check_usable(world);
    // Operations of another group are allowed.
    const auto alone = world.split(world.rank());
    CHECK(run_master_only([&] { return all_reduce(1, reduce_op::sum, alone); }) == 1);
  });
}

TEST_CASE("run_master_only: ranks that expect different types get a mismatch_error") {
  at_every_size(
      [](const process_group& world) {
        const auto call = [&] {
          if (world.rank() == 1) {
            (void)run_master_only([] { return 1.0; });
          } else {
            (void)run_master_only([] { return 1; });
          }
        };
        CHECK(error_of<mismatch_error>(call).second_rank() == 1);
        check_usable(world);
      },
      2);
}

TEST_CASE("run_master_only: the others wait until their timeout") {
  std::atomic<int> gave_up{0};
  run_noted(3, {}, [&](const process_group& world) {
    const auto call = [&] {
      return run_master_only(
          [&] {
            wait_until([&] { return gave_up == world.size() - 1; });
            return 1;
          },
          world, std::chrono::milliseconds(100));
    };
    CHECK((error_of<timeout_error>(call).missing() == std::vector{0}));
    ++gave_up;
    CHECK(world.broken());
  });
}

}  // namespace
