// SPDX-License-Identifier: MIT
#include <chrono>
#include <random>
#include <string>

#include "../process/processes.hpp"
#include "device_ranks.hpp"

namespace {

using namespace hfcomm;
using namespace device_ranks;
using namespace std::chrono_literals;

TEST_CASE("device processes: operations give the right results") {
  const std::string name = "device-" + std::to_string(::getpid());
  processes::child_processes children(3, [&](int rank) {
    const session own = init(processes::job_options(name, rank, 3));
    const fake_cuda::install fake;
    const rank_stream stream(world());
    auto data = on_device(std::vector<float>(1000, static_cast<float>(rank)), stream);
    all_reduce(data, stream);
    const auto sums = on_host(data, stream);
    processes::report(sums == std::vector<float>(1000, 3.0F) ? "right" : "wrong");
  });
  for (const auto& outcome : children.wait(30s)) {
    CHECK(outcome.output == "right\n");
    CHECK(outcome.exited_with(0));
  }
}

TEST_CASE("device processes: SIGKILL of a rank frees the others' devices, and all name it") {
  std::mt19937 random(5);
  for (int round = 0; round < 12; ++round) {
    const int ranks = 2 + round % 3;
    const int victim = static_cast<int>(random() % static_cast<unsigned>(ranks));
    const std::string name = "device-kill-" + std::to_string(::getpid()) + '-' + std::to_string(round);
    int begun[2];
    REQUIRE(::pipe(begun) == 0);
    processes::child_processes children(ranks, [&](int rank) {
      const session own = init(processes::job_options(name, rank, ranks));
      const fake_cuda::install fake;
      const rank_stream stream(world());
      device_buffer<float> data(1000);
      connect_device();
      all_reduce(data, stream);
      synchronize(stream);
      if (::write(begun[1], "x", 1) != 1) {
        std::abort();
      }
      try {
        for (;;) {
          if (round % 2 == 0) {
            all_reduce(data, stream);
            synchronize(stream);
          } else {
            all_reduce_async(data, stream).synchronize();
          }
        }
      } catch (const peer_error& problem) {
        processes::report("peer " + std::to_string(problem.peer()));
      }
    });
    ::close(begun[1]);
    char sign{};
    for (int rank = 0; rank < ranks; ++rank) {
      REQUIRE(::read(begun[0], &sign, 1) == 1);
    }
    ::close(begun[0]);
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 20'000));
    children.kill(victim, SIGKILL);
    const auto outcomes = children.wait(20s);
    for (int rank = 0; rank < ranks; ++rank) {
      const auto& outcome = outcomes[as_index(rank)];
      INFO("rank ", rank, " of ", ranks, " in round ", round, ", victim ", victim);
      if (rank == victim) {
        CHECK(outcome.killed_by(SIGKILL));
      } else {
        CHECK(outcome.output == "peer " + std::to_string(victim) + "\n");
        CHECK(outcome.exited_with(0));
      }
    }
  }
}

}  // namespace
