// SPDX-License-Identifier: MIT
// Failures among several ranks on one GPU: no rank waits for ever, and errors name the failed rank.
#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <unistd.h>

#include "ranks.hpp"

namespace {

using namespace hfcomm;
using namespace std::chrono_literals;
using gpu::as_index;
using gpu::require;
using processes::report;

/// Warms up the operation that will fail.
device_buffer<float> warm(const gpu::stream& stream) {
  auto data = gpu::on_device(std::vector<float>(4099, 1.0F), stream);
  all_reduce(data, stream, reduce_op::max);
  synchronize(stream);
  barrier();
  return data;
}

TEST_CASE("SIGKILL: the others name a rank killed during operations, and end well") {
  if (gpu::without_ranks("SIGKILL: the others name a rank killed during operations, and end well")) {
    return;
  }
  int round = 0;
  for (const auto& [ranks, victim] : {std::pair(2, 0), std::pair(2, 1), std::pair(4, 2), std::pair(4, 0)}) {
    ++round;
    INFO("round ", round, ": ", ranks, " ranks, victim ", victim);
    int begun[2];
    REQUIRE(::pipe(begun) == 0);
    const auto children = gpu::start_ranks("kill", ranks, [&, all = ranks](const gpu::stream& stream) {
      auto data = warm(stream);
      require(::write(begun[1], "x", 1) == 1, "the pipe is broken");
      try {
        for (int turn = 0;; ++turn) {
          if (round % 2 == 0) {
            all_reduce(data, stream, reduce_op::max);
            synchronize(stream);
          } else {
            all_reduce_async(data, stream, reduce_op::max).synchronize();
          }
          require(turn < 1'000'000, "nobody died among " + std::to_string(all));
        }
      } catch (const peer_error& problem) {
        report("peer " + std::to_string(problem.peer()));
      }
    });
    ::close(begun[1]);
    char sign{};
    bool all_begun = true;
    for (int rank = 0; rank < ranks; ++rank) {
      all_begun = ::read(begun[0], &sign, 1) == 1 && all_begun;
    }
    ::close(begun[0]);
    std::this_thread::sleep_for(std::chrono::milliseconds(37 * round));
    const auto killed = processes::clock::now();
    children->kill(victim, SIGKILL);
    const auto outcomes = children->wait(gpu::time_limit);
    CHECK(all_begun);
    for (int rank = 0; rank < ranks; ++rank) {
      INFO("rank ", rank);
      const auto& outcome = outcomes[as_index(rank)];
      if (rank == victim) {
        CHECK(outcome.killed_by(SIGKILL));
      } else {
        CHECK(outcome.output == "peer " + std::to_string(victim) + "\n");
        CHECK(outcome.exited_with(0));
        CHECK(outcome.ended - killed < 60s);  // their deadline for it, which is as long, did not pass
      }
    }
  }
}

TEST_CASE("ranks on a GPU: after the deadline a rank that never calls an operation is named") {
  if (gpu::without_ranks("ranks on a GPU: after the deadline a rank that never calls an operation is named")) {
    return;
  }
  for (const int ranks : {2, 4}) {
    gpu::run_ranks("never", ranks, [=](const gpu::stream& stream) {
      auto data = warm(stream);
      const int absent = ranks / 2;
      if (world().rank() == absent) {
        gpu::until_broken(world());
        (void)gpu::expect_error<timeout_error>([&] { all_reduce(data, stream); });
        return;
      }
      const auto hurried = world().with_timeout(2s);
      all_reduce(data, stream, reduce_op::sum, hurried);
      const auto problem = gpu::expect_error<timeout_error>([&] { synchronize(stream, hurried); });
      require(problem.missing() == std::vector<int>{absent}, problem.what());
      require(world().broken(), "the group is not broken");
      (void)gpu::expect_error<timeout_error>([] { barrier(); });
      gpu::drain(stream);  // what waited on the device is freed
    });
  }
}

TEST_CASE("ranks on a GPU: a started operation that a rank never calls ends at the deadline") {
  if (gpu::without_ranks("ranks on a GPU: a started operation that a rank never calls ends at the deadline")) {
    return;
  }
  gpu::run_ranks("started", 2, [](const gpu::stream& stream) {
    auto data = warm(stream);
    if (world().rank() == 1) {
      gpu::until_broken(world());
      return;
    }
    auto work = all_reduce_async(data, stream, reduce_op::sum, world().with_timeout(2s));
    require(!work.synchronize(50ms), "it was done without rank 1");
    const auto problem = gpu::expect_error<timeout_error>([&] { work.synchronize(); });
    require(problem.missing() == std::vector<int>{1}, problem.what());
  });
}

TEST_CASE("ranks on a GPU: an exception that ends a rank frees the others' devices") {
  if (gpu::without_ranks("ranks on a GPU: an exception that ends a rank frees the others' devices")) {
    return;
  }
  const auto children = gpu::start_ranks("throws", 4, [](const gpu::stream& stream) {
    auto data = warm(stream);
    all_reduce(data, stream);
    if (world().rank() == 1) {
      throw std::runtime_error("out of data");
    }
    const auto problem = gpu::expect_error<peer_error>([&] {
      all_reduce(data, stream);
      synchronize(stream);
    });
    require(problem.peer() == 1, problem.what());
    gpu::drain(stream);
  });
  const auto outcomes = children->wait(gpu::time_limit);
  for (int rank = 0; rank < 4; ++rank) {
    INFO("rank ", rank);
    CHECK(outcomes[as_index(rank)].output == (rank == 1 ? "out of data\n" : ""));
    CHECK(outcomes[as_index(rank)].exited_with(rank == 1 ? 1 : 0));
  }
}

TEST_CASE("ranks on a GPU: bad input on one rank is an error on the others, and their devices are freed") {
  if (gpu::without_ranks(
          "ranks on a GPU: bad input on one rank is an error on the others, and their devices are freed")) {
    return;
  }
  gpu::run_ranks("input", 2, [](const gpu::stream& stream) {
    auto data = warm(stream);
    std::vector<float> ordinary(data.size());
    if (world().rank() == 0) {
      all_reduce(data, stream);
      const auto problem = gpu::expect_error<peer_error>([&] { synchronize(stream); });
      require(problem.peer() == 1, problem.what());
      require(gpu::says(problem, "host memory"), problem.what());
    } else {
      (void)gpu::expect_error<usage_error>(
          [&] { all_reduce(device_span<float>(ordinary.data(), ordinary.size()), stream); });
      gpu::until_broken(world());
    }
  });
}

TEST_CASE("ranks on a GPU: groups may be dropped with operations in flight") {
  if (gpu::without_ranks("ranks on a GPU: groups may be dropped with operations in flight")) {
    return;
  }
  gpu::run_ranks("dropped", 2, [](const gpu::stream& stream) {
    auto data = warm(stream);
    for (int turn = 0; turn < 3; ++turn) {
      const process_group own = world().split(0);
      for (int more = 0; more < 20; ++more) {
        all_reduce(data, stream, reduce_op::max, own);
      }
      (void)all_reduce_async(data, stream, reduce_op::max, own);
    }
    gpu::drain(stream);
    require(gpu::on_host(data, stream) == std::vector<float>(4099, 1.0F), "the numbers are wrong");
    all_reduce(data, stream);
    synchronize(stream);
    require(gpu::on_host(data, stream) == std::vector<float>(4099, 2.0F), "the sums are wrong");
  });
}

TEST_CASE("ranks on a GPU: a rank may leave with operations in flight") {
  if (gpu::without_ranks("ranks on a GPU: a rank may leave with operations in flight")) {
    return;
  }
  // All of rank 1's part is on its device when it leaves; what is missing comes too late.
  gpu::run_ranks("leaves", 2, [](const gpu::stream& stream) {
    auto data = warm(stream);
    all_reduce(data, stream, reduce_op::max);
    if (world().rank() == 1) {
      return;
    }
    const auto problem = gpu::expect_error<peer_error>([&] {
      all_reduce(data, stream, reduce_op::max);
      synchronize(stream);
    });
    require(problem.peer() == 1, problem.what());
  });
}

TEST_CASE("device_watch: it frees a rank that waits by other means than hfcomm's") {
  if (gpu::without_ranks("device_watch: it frees a rank that waits by other means than hfcomm's")) {
    return;
  }
  gpu::run_ranks("watch", 2, [](const gpu::stream& stream) {
    auto data = warm(stream);
    const device_watch watch(3s);
    for (int turn = 0; turn < 3; ++turn) {
      all_reduce(data, stream, reduce_op::max);
    }
    gpu::drain(stream);
    // Computation before it takes longer than the deadline: that is no stuck operation.
    barrier();
    gpu::hold(stream.get(), nullptr, 4'000'000'000U);
    all_reduce(data, stream, reduce_op::max);
    gpu::drain(stream);
    require(!world().broken(), "computation was taken for a stuck operation");
    barrier();
    if (world().rank() == 1) {
      gpu::until_broken(world());
      return;
    }
    all_reduce(data, stream, reduce_op::max);
    gpu::drain(stream);  // would wait for ever
    const auto problem = gpu::expect_error<timeout_error>([&] { all_reduce(data, stream); });
    require(problem.missing() == std::vector<int>{1}, problem.what());
  });
}

TEST_CASE("device_watch: it notices a lost rank") {
  if (gpu::without_ranks("device_watch: it notices a lost rank")) {
    return;
  }
  const auto children = gpu::start_ranks("gone", 2, [](const gpu::stream& stream) {
    auto data = warm(stream);
    if (world().rank() == 1) {
      std::_Exit(0);
    }
    const device_watch watch;  // of the group's deadline, which does not pass
    const auto problem = gpu::expect_error<peer_error>([&] {
      all_reduce(data, stream, reduce_op::max);
      gpu::drain(stream);  // would wait for ever
      all_reduce(data, stream);
    });
    require(problem.peer() == 1, problem.what());
  });
  for (const auto& outcome : children->wait(gpu::time_limit)) {
    CHECK(outcome.output == "");
    CHECK(outcome.exited_with(0));
  }
}

}  // namespace
