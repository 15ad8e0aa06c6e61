// SPDX-License-Identifier: MIT
#include "ranks.hpp"

#include <atomic>
#include <memory>

namespace {

using namespace hfcomm;
using namespace multi_rank;

TEST_CASE("barrier_scope: all ranks enter together and leave together") {
  for (const int ranks : rank_counts) {
    std::atomic<int> entered{0};
    std::atomic<int> done{0};
    const auto inside = [&](const process_group& world) {
      CHECK(entered == world.size());
      std::this_thread::sleep_for(std::chrono::milliseconds(world.rank()));
      ++done;
    };
    run_noted(ranks, {}, [&](const process_group& world) {
      ++entered;
      {
        const barrier_scope guard;
        inside(world);
      }
      CHECK(done == world.size());
      barrier();
      entered = world.size();
      run_barrier_scope([&] { inside(world); });
      CHECK(done == 2 * world.size());
      // Inside, the ranks may use the group: they are all there.
      const barrier_scope guard(world);
      check_usable(world);
    });
  }
}

TEST_CASE("barrier_scope: when an exception leaves the scope on one rank, every rank's next operation throws") {
  at_every_size(
      [](const process_group& world) {
        const int odd = world.size() - 1;
        const auto call = [&] {
          const barrier_scope guard;
          if (world.rank() == odd) {
            throw std::domain_error("left early");
          }
        };
        if (world.rank() == odd) {
          (void)error_of<std::domain_error>(call);
        } else {
          call();
        }
        // The others fail in it, so it fails for the odd one as well; nobody waits in vain.
        const auto problem = error_of<peer_error>([] { barrier(); });
        CHECK(problem.peer() == (world.rank() == odd ? 0 : odd));
        CHECK_FALSE(problem.fatal());
        CHECK_CONTAINS(problem.what(), "rank " + std::to_string(odd) + " (");
        CHECK_CONTAINS(problem.what(), "exception");
        check_usable(world);
      },
      2);
}

TEST_CASE("run_barrier_scope: an exception of any rank reaches every rank with its text") {
  at_every_size([](const process_group& world) {
    for (int odd = 0; odd < world.size(); ++odd) {
      const auto call = [&] {
        run_barrier_scope([&] {
          if (world.rank() == odd) {
            throw std::domain_error("could not save");
          }
        });
      };
      if (world.rank() == odd) {
        CHECK(error_of<std::domain_error>(call).what() == std::string("could not save"));
      } else {
        const auto problem = error_of<peer_error>(call);
        CHECK(problem.peer() == odd);
        CHECK_CONTAINS(problem.what(), "could not save");
      }
      check_usable(world);
    }
  });
}

TEST_CASE("run_barrier_scope: an exception does not hide the error of an earlier operation") {
  at_every_size(
      [](const process_group& world) {
        const failing_object object{.fails_to_save = world.rank() == 1};
        const auto body = [&] {
          if (world.rank() == 1) {
            (void)all_gather_async(object);
            throw std::domain_error("bad batch");
          }
          CHECK_CONTAINS(error_of<peer_error>([&] { (void)all_gather(object); }).what(), "cannot save this");
        };
        if (world.rank() == 1) {
          CHECK_THROWS_WITH_AS(run_barrier_scope(body), "bad batch", std::domain_error);
          CHECK_THROWS_WITH_AS(barrier(), "cannot save this", std::domain_error);
        } else {
          CHECK(error_of<peer_error>([&] { run_barrier_scope(body); }).peer() == 1);
          CHECK(error_of<peer_error>([] { barrier(); }).peer() == 1);
        }
        check_usable(world);
      },
      2);
}

TEST_CASE("run_*: every rank gets its own value, of any type") {
  at_every_size([](const process_group& world) {
    const auto owned = run_master_first([&] { return std::make_unique<int>(world.rank()); });
    CHECK(*owned == world.rank());
    const auto nested = run_barrier_scope([&] { return run_master_first([&] { return text_of(world.rank(), 9); }); });
    CHECK(nested == text_of(world.rank(), 9));
    int value = 1;
    auto pointer = std::make_unique<int>(1);
    int& same = run_local_master_first([&]() -> int& { return value; });
    CHECK(&same == &value);
    CHECK(&run_barrier_scope([&]() -> int& { return value; }) == &value);
    const auto owner = run_barrier_scope([&]() -> std::unique_ptr<int>&& { return std::move(pointer); });
    CHECK(owner != nullptr);
    CHECK(pointer == nullptr);
    CHECK(*run_barrier_scope([&] { return std::make_unique<int>(world.rank()); }) == world.rank());
    CHECK(run_local_master_first([] { return run_barrier_scope([] { return 3; }, process_group()); }) == 3);
    bool ran = false;
    run_barrier_scope([&] { ran = true; });
    CHECK(ran);
  });
}

TEST_CASE("scopes: without init they are plain blocks") {
  {
    const master_first guard;
  }
  {
    const local_master_first guard;
  }
  {
    const barrier_scope guard;
  }
  CHECK(run_master_first(
            [] {
              return run_local_master_first([] { return run_barrier_scope([] { return 4; }, process_group()); },
                                            master_first::default_timeout);
            },
            process_group()) == 4);
  CHECK_THROWS_AS(run_master_first([] { throw std::domain_error("x"); }), std::domain_error);
  barrier();
}

}  // namespace
