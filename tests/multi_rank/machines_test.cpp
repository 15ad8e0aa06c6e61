// SPDX-License-Identifier: MIT
#include "machines.hpp"

#include <atomic>
#include <filesystem>
#include <fstream>

#include <unistd.h>

namespace {

using namespace hfcomm;
using namespace multi_rank;

const std::vector<machine_layout> layouts{{1}, {2}, {1, 1}, {3, 1}, {1, 2}, {2, 1, 3}, {1, 4, 2, 1}};

}  // namespace

TEST_CASE("machines: local groups may have different sizes, and keep the ranks' order") {
  for (const auto& machines : layouts) {
    on_machines(machines, [&](const process_group& world) {
      int first = 0;
      int node = 0;
      while (first + machines[as_index(node)] <= world.rank()) {
        first += machines[as_index(node++)];
      }
      CHECK(node_rank() == node);
      CHECK(node_count() == static_cast<int>(machines.size()));
      CHECK(local_size() == machines[as_index(node)]);
      CHECK(local_rank() == world.rank() - first);
      CHECK(is_local_main_process() == (world.rank() == first));
      const auto neighbours = all_gather(world.rank(), local_group());
      for (std::size_t index = 0; index < neighbours.size(); ++index) {
        CHECK(neighbours[index] == first + static_cast<int>(index));
      }
      check_usable(local_group());
    });
  }
}

TEST_CASE("machines: the leader group has one rank of each machine") {
  for (const auto& machines : layouts) {
    on_machines(machines, [&](const process_group& world) {
      CHECK(leader_group().has_value() == is_local_main_process());
      // Every rank's contribution, through its machine's leader.
      const auto local = reduce(world.rank(), 0, reduce_op::sum, local_group());
      int total = 0;
      if (leader_group()) {
        CHECK(leader_group()->size() == node_count());
        CHECK(leader_group()->rank() == node_rank());
        total = all_reduce(*local, reduce_op::sum, *leader_group());
      }
      broadcast(total, 0, local_group());
      CHECK(total == world.size() * (world.size() - 1) / 2);
    });
  }
}

TEST_CASE("machines: on a single machine, rank 0 leads a group of itself") {
  at_every_size([](const process_group& world) {
    CHECK(leader_group().has_value() == (world.rank() == 0));
    CHECK((!leader_group() || leader_group()->size() == 1));
    CHECK(node_count() == 1);
    CHECK(local_group() == world);
  });
}

TEST_CASE("machines: local_master_first runs on each machine's first rank first, without waiting for other machines") {
  const std::vector<int> machines{3, 1, 2};
  std::array<std::atomic<int>, 3> through{};
  on_machines(machines, [&](const process_group& world) {
    {
      const local_master_first guard;
      const int before = through[as_index(node_rank())]++;
      CHECK((before == 0) == is_local_main_process());
      if (node_rank() == 2) {
        // The last machine continues only when the others have finished: they do not wait for it.
        wait_until([&] { return through[0] == 3 && through[1] == 1; });
      }
    }
    barrier(world);
    CHECK(through[2] == 2);
  });
}

TEST_CASE("machines: two ranks that both send first are told so at their deadline") {
  on_machines({1, 1}, [](const process_group& world) {
    const auto group = world.split(0).with_timeout(std::chrono::milliseconds(500));
    const auto problem = error_of<timeout_error>([&] { send(world.rank(), 1 - world.rank(), group); });
    CHECK_CONTAINS(problem.what(), "timed out");
    CHECK_CONTAINS(problem.what(), " offers send(an object of type int, to rank ");
    CHECK_CONTAINS(problem.what(), "machines_test.cpp:");
    CHECK_CONTAINS(problem.what(), "Two ranks that both send first wait for each other: use send_receive, or isend");
    check_usable(world);
  });
}

TEST_CASE("machines: a file is read once on each") {
  // Every machine has a file of its own under the same name, as a local disk would: here, under its own name.
  const auto directory = std::filesystem::temp_directory_path() / ("hfcomm_machines_" + std::to_string(::getpid()));
  std::filesystem::create_directories(directory);
  for (int node = 0; node < 2; ++node) {
    std::ofstream(directory / std::to_string(node)) << "contents on machine " << node;
  }
  on_machines({1, 3}, [&](const process_group& world) {
    const std::string text = read_file_dist(directory / std::to_string(node_rank()), local_group());
    CHECK(text == "contents on machine " + std::to_string(node_rank()));
    check_usable(world);
  });
  std::filesystem::remove_all(directory);
}

TEST_CASE("machines: sizes that do not add up are a usage_error") {
  testing::run_ranks_options options;
  options.machines = {2, 2};
  const auto problem = error_of<usage_error>([&] { run_ranks(3, [](const process_group&) {}, options); });
  CHECK_CONTAINS(problem.what(), "machines_test.cpp:");  // the caller's line
  options.machines = {3, 0};
  CHECK_THROWS_AS(run_ranks(3, [](const process_group&) {}, options), usage_error);
}
