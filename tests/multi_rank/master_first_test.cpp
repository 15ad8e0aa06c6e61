// SPDX-License-Identifier: MIT
#include "ranks.hpp"

#include <atomic>

namespace {

using namespace hfcomm;
using namespace multi_rank;

/// Checks, from inside the sections, that rank 0 leaves before another rank enters, and that the others are inside
/// together.
class order_of_entry {
 public:
  void inside(const process_group& group) {
    if (group.rank() == 0) {
      CHECK(others_ == 0);
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      CHECK(others_ == 0);
      master_was_here_ = true;
    } else {
      CHECK(master_was_here_.load());
      ++others_;
      wait_until([&] { return others_ == group.size() - 1; });
    }
  }
  [[nodiscard]] int others() const { return others_; }

 private:
  std::atomic<bool> master_was_here_{false};
  std::atomic<int> others_{0};
};

TEST_CASE("master_first: rank 0 runs first, then all others at once") {
  for (const int ranks : rank_counts) {
    order_of_entry guard_order;
    order_of_entry function_order;
    order_of_entry local_guard_order;
    order_of_entry local_function_order;
    run_noted(ranks, {}, [&](const process_group& world) {
      {
        const master_first guard;
        guard_order.inside(world);
      }
      run_master_first([&] { function_order.inside(world); });
      {
        const local_master_first guard;
        local_guard_order.inside(world);
      }
      run_local_master_first([&] { local_function_order.inside(world); });
      check_usable(world);
    });
    CHECK(guard_order.others() == ranks - 1);
    CHECK(function_order.others() == ranks - 1);
    CHECK(local_guard_order.others() == ranks - 1);
    CHECK(local_function_order.others() == ranks - 1);
  }
}

TEST_CASE("master_first: a group's master is its rank 0") {
  for (const int ranks : rank_counts) {
    order_of_entry order;
    run_noted(ranks, {}, [&](const process_group& world) {
      const auto turned = world.split(0, -world.rank());
      const master_first guard(turned);
      order.inside(turned);
    });
  }
}

TEST_CASE("master_first: many sections may follow each other, with operations between") {
  at_every_size([](const process_group& world) {
    for (int round = 0; round < 20; ++round) {
      {
        const master_first guard;
      }
      {
        const master_first guard;
      }
      CHECK(run_master_first([&] { return world.rank() + round; }) == world.rank() + round);
      CHECK(all_reduce(1) == world.size());
      {
        const local_master_first guard;
      }
      {
        const barrier_scope guard;
      }
      {
        const master_first guard(world);
      }
      barrier();
    }
  });
}

TEST_CASE("master_first: sections of different groups may nest") {
  at_every_size(
      [](const process_group& world) {
        const auto half = world.split(world.rank() % 2);
        const int value = run_master_first([&] { return run_master_first([] { return 5; }, half); });
        CHECK(value == 5);
        check_usable(world);
        check_usable(half);
      },
      1);
}

TEST_CASE("run_master_first: an exception of the master reaches every rank, and no other rank runs the function") {
  for (const int ranks : rank_counts) {
    std::atomic<int> runs{0};
    run_noted(ranks, {}, [&](const process_group& world) {
      const auto fail = [&]() -> int {
        ++runs;
        throw std::domain_error("the mirror is down");
      };
      for (const bool local : {false, true}) {
        const auto call = [&] { (void)(local ? run_local_master_first(fail) : run_master_first(fail)); };
        if (world.rank() == 0) {
          CHECK(error_of<std::domain_error>(call).what() == std::string("the mirror is down"));
        } else {
          const auto problem = error_of<peer_error>(call);
          CHECK(problem.peer() == 0);
          CHECK_FALSE(problem.fatal());
          CHECK_CONTAINS(problem.what(), "the mirror is down");
        }
        check_usable(world);
      }
    });
    CHECK(runs == 2);
  }
}

TEST_CASE("run_master_first: an exception of another rank stays on that rank") {
  at_every_size([](const process_group& world) {
    const bool odd = world.rank() != 0 && world.rank() == world.size() - 1;
    const auto call = [&] { return run_master_first([&] { return odd ? throw std::domain_error("mine") : 1; }); };
    if (odd) {
      (void)error_of<std::domain_error>(call);
    } else {
      CHECK(call() == 1);
    }
    check_usable(world);
  });
}

TEST_CASE("master_first: when an exception leaves the master's section, no other rank enters") {
  at_every_size([](const process_group& world) {
    bool inside = false;
    const auto call = [&] {
      const master_first guard;
      inside = true;
      if (world.rank() == 0) {
        throw std::domain_error("caught close by");
      }
    };
    if (world.rank() == 0) {
      (void)error_of<std::domain_error>(call);
    } else {
      const auto problem = error_of<peer_error>(call);
      CHECK(problem.peer() == 0);
      CHECK_CONTAINS(problem.what(), "exception");
      CHECK_FALSE(inside);
    }
    check_usable(world);
  });
}

TEST_CASE("master_first: an exception that ends rank 0 is quoted on the others") {
  for (const int ranks : {2, 4}) {
    std::atomic<int> told{0};
    const auto rank_main = [&](const process_group& world) {
      try {
        const master_first guard;
        if (world.rank() == 0) {
          throw std::domain_error("no space on the device");
        }
      } catch (const peer_error& problem) {
        told += contains(problem.what(), "no space on the device") ? 1 : 0;
        throw;
      }
    };
    CHECK_THROWS_WITH_AS(run_ranks(ranks, rank_main), "no space on the device", std::domain_error);
    CHECK(told == ranks - 1);
  }
}

TEST_CASE("master_first: an operation inside the master's section is a usage_error, and the section still ends") {
  at_every_size([](const process_group& world) {
    {
      const master_first guard;
      if (world.rank() == 0) {
        CHECK_CONTAINS(error_of<usage_error>([] { barrier(); }).what(), "master-first section");
        CHECK_CONTAINS(error_of<usage_error>([] { (void)all_gather(1); }).what(), "master-first section");
        CHECK_CONTAINS(error_of<usage_error>([] { const master_first again; }).what(), "master-first section");
        CHECK_CONTAINS(error_of<usage_error>([] { const barrier_scope again; }).what(), "master-first section");
        CHECK_CONTAINS(error_of<usage_error>([&] { (void)world.split(0); }).what(), "master-first section");
      }
    }
    check_usable(world);
    const auto alone = world.split(world.rank());
    const master_first guard;
    barrier(alone);  // other groups may be used
  });
}

TEST_CASE("master_first: the others wait until their timeout") {
  for (const int ranks : {2, 4}) {
    std::atomic<int> gave_up{0};
    run_noted(ranks, {}, [&](const process_group& world) {
      if (world.rank() == 0) {
        {
          const master_first guard(world, std::chrono::milliseconds(100));
          wait_until([&] { return gave_up == world.size() - 1; });
        }
        CHECK((error_of<timeout_error>([] { barrier(); }).missing() == std::vector{0}));
      } else {
        const auto problem =
            error_of<timeout_error>([&] { const master_first guard(world, std::chrono::milliseconds(100)); });
        CHECK((problem.missing() == std::vector{0}));
        ++gave_up;
        CHECK(world.broken());
      }
    });
  }
}

}  // namespace
