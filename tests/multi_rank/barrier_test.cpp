// SPDX-License-Identifier: MIT
#include "ranks.hpp"

#include <atomic>

namespace {

using namespace hfcomm;
using namespace multi_rank;

TEST_CASE("barrier: no rank leaves before all have entered") {
  for (const int ranks : rank_counts) {
    std::atomic<int> came{0};
    run_noted(ranks, {}, [&](const process_group& world) {
      for (int round = 1; round <= 50; ++round) {
        ++came;
        barrier();
        CHECK(came.load() >= round * world.size());
        barrier(world);
        CHECK(came.load() <= round * world.size() + world.size());
      }
    });
    CHECK(came.load() == 50 * ranks);
  }
}

TEST_CASE("barrier: the others wait for a late rank, asleep or spinning") {
  for (const int late : {0, 1, 2}) {
    std::atomic<bool> came{false};
    run_noted(3, {}, [&](const process_group& world) {
      if (world.rank() == late) {
        std::this_thread::sleep_for(std::chrono::milliseconds(60));
        came = true;
      }
      barrier();
      CHECK(came.load());
    });
  }
}

TEST_CASE("barrier: without init it returns at once") {
  CHECK_FALSE(is_initialized());
  CHECK(world_size() == 1);
  barrier();
  barrier(world().with_timeout(std::chrono::nanoseconds(1)));
}

TEST_CASE("barrier: groups do not wait for each other") {
  at_every_size([](const process_group& world) {
    const auto own = world.split(world.rank());
    const auto half = world.split(world.rank() % 2);
    for (int round = 0; round <= world.rank() % 2 * 20; ++round) {
      barrier(own);
      barrier(half);
    }
    barrier();
  });
}

TEST_CASE("run_ranks: every thread is a rank of its own") {
  at_every_size([](const process_group& world) {
    CHECK(rank() == world.rank());
    CHECK(world_size() == world.size());
    CHECK(local_rank() == rank());
    CHECK(local_size() == world_size());
    CHECK(node_rank() == 0);
    CHECK(node_count() == 1);
    CHECK(is_initialized());
    CHECK(is_main_process() == (rank() == 0));
    CHECK(is_local_main_process() == (rank() == 0));
    CHECK(hfcomm::world() == world);
    CHECK(world.host_backend() == "shared_memory");
    CHECK(world.device_backend() == "none");
  });
  CHECK_FALSE(is_initialized());
  CHECK(world_size() == 1);
}

TEST_CASE("run_ranks: init in a rank is a usage_error") {
  run_noted(2, {}, [](const process_group& world) {
    const auto problem = error_of<usage_error>([] { (void)init(); });
    CHECK_CONTAINS(problem.what(), "run_ranks");
    check_usable(world);
  });
}

}  // namespace
