// SPDX-License-Identifier: MIT
// Several ranks on one GPU: whether NCCL allows them, and how they connect.
#include <chrono>
#include <string>
#include <vector>

#include "ranks.hpp"

namespace {

using namespace hfcomm;
using namespace std::chrono_literals;
using gpu::require;

TEST_CASE("connect_device: two ranks may share one GPU") {
  if (gpu::without_ranks("connect_device: two ranks may share one GPU")) {
    return;
  }
  gpu::run_ranks("first", 2, [](const gpu::stream& stream) {
    require(world().device_backend() == "none", "connected too early");
    connect_device();
    require(world().device_backend() == "nccl", "not connected");
    connect_device();  // again: nothing to do
    barrier(stream);
    synchronize(stream);
  });
}

TEST_CASE("connect_device: two ranks of one machine on one GPU are an error that names both") {
  const std::string job = processes::unique_name("gpu-same");
  processes::child_processes children(2, [&](int rank) {
    gpu::pretend_machine(0);
    const auto device = gpu::open();
    const session own = init(processes::job_options(job, rank, 2));
    const auto problem = gpu::expect_error<usage_error>([] { connect_device(); });
    require(gpu::says(problem, "ranks 0 and 1 use the same GPU"), problem.what());
    barrier();  // the group goes on
  });
  for (const auto& outcome : children.wait(gpu::time_limit)) {
    CHECK(outcome.output == "");
    CHECK(outcome.exited_with(0));
  }
}

TEST_CASE("connect_device: after the deadline a rank that does not connect is named") {
  for (const int ranks : {2, 4}) {
    INFO("with ", ranks, " ranks");
    gpu::run_ranks("absent", ranks, [=](const gpu::stream&) {
      const int absent = ranks - 1;
      const auto begun = std::chrono::steady_clock::now();
      if (world().rank() == absent) {
        gpu::until_broken(world());
      } else {
        const auto problem = gpu::expect_error<timeout_error>([] { connect_device(world().with_timeout(2s)); });
        require(problem.missing() == std::vector<int>{absent}, problem.what());
      }
      require(std::chrono::steady_clock::now() - begun < 60s, "that was long after the deadline");
    });
  }
}

TEST_CASE("connect_device: a rank that dies while the others connect is named") {
  if (gpu::without_ranks("connect_device: a rank that dies while the others connect is named")) {
    return;
  }
  const auto children = gpu::start_ranks("dies", 3, [](const gpu::stream&) {
    barrier();
    if (world().rank() == 1) {
      std::_Exit(0);  // without an error
    }
    const auto problem = gpu::expect_error<peer_error>([] { connect_device(); });
    require(problem.peer() == 1, problem.what());
  });
  for (const auto& outcome : children->wait(gpu::time_limit)) {
    CHECK(outcome.output == "");
    CHECK(outcome.exited_with(0));
  }
}

TEST_CASE("connect_device: job after job connects and ends") {
  if (gpu::without_ranks("connect_device: job after job connects and ends")) {
    return;
  }
  for (const int ranks : {2, 4, 2}) {
    gpu::run_ranks("again", ranks, [=](const gpu::stream& stream) {
      auto data = gpu::on_device(std::vector<int>(3, 1), stream);
      all_reduce(data, stream);  // connects
      synchronize(stream);
      require(gpu::on_host(data, stream) == std::vector<int>(3, ranks), "wrong sums");
    });
  }
}

}  // namespace
