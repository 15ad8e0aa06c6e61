// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <array>
#include <optional>
#include <stdexcept>

#include "processes.hpp"

#include <hfcomm/collectives/all_gather.hpp>
#include <hfcomm/collectives/barrier.hpp>
#include <hfcomm/group/work.hpp>

using namespace hfcomm;
using namespace std::chrono_literals;
using processes::unique_name;

namespace {

void expect(bool condition, const char* what) {
  if (!condition) {
    throw std::runtime_error(what);
  }
}

template <class Call>
void expect_refusal(Call&& call, const char* what) {
  try {
    std::forward<Call>(call)();
  } catch (const usage_error& problem) {
    expect(std::string(problem.what()).find("before a fork") != std::string::npos, problem.what());
    return;
  }
  throw std::runtime_error(what);
}

/// Runs `body` in a child of this rank; throws if it fails.
template <class Body>
void in_child(Body body) {
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    int status = 0;
    try {
      body();
    } catch (const std::exception& problem) {
      processes::report(std::string("in the child: ") + problem.what());
      status = 1;
    }
    ::_exit(status);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  expect(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the child failed");
}

}  // namespace

TEST_CASE("work: the child of a fork may not use works in flight and does not wait for them") {
  std::array<int, 2> gate{};
  REQUIRE(::pipe2(gate.data(), O_CLOEXEC) == 0);
  processes::child_processes children(2, [&](int rank) {
    session own = init(processes::job_options(unique_name("work-fork"), rank, 2));
    char byte = 'x';
    if (rank == 1) {  // comes when the child has ended
      expect(::read(gate[0], &byte, 1) == 1, "the gate is broken");
      expect((all_gather_async(1).wait() == std::vector{0, 1}), "a wrong value");
      barrier();
      return;
    }
    std::optional<work<std::vector<int>>> pending = all_gather_async(0);
    std::optional<work<void>> behind = barrier_async();
    in_child([&] {
      expect(!pending->done(), "the parent's work is done in the child");
      expect(pending->error() == nullptr, "the parent's work has an error in the child");
      expect_refusal([&] { (void)pending->wait(); }, "wait did not refuse");
      expect_refusal([&] { (void)pending->wait(1ms); }, "wait with a limit did not refuse");
      expect_refusal([] { barrier(); }, "a blocking collective did not refuse");
      expect_refusal([] { (void)barrier_async(); }, "an asynchronous collective did not refuse");
      pending.reset();
      behind.reset();
    });
    expect(::write(gate[1], &byte, 1) == 1, "the gate is broken");
    expect((pending->wait() == std::vector{0, 1}), "a wrong value");
    behind->wait();
  });
  for (const auto& outcome : children.wait(30s)) {
    INFO(outcome.output);
    CHECK(outcome.exited_with(0));
  }
  ::close(gate[0]);
  ::close(gate[1]);
}

TEST_CASE("work: the child of a process with a world of one may use blocking collectives") {
  processes::child_processes children(1, [](int) {
    barrier_async().wait();
    in_child([] {
      barrier();
      expect((all_gather(3) == std::vector{3}), "a wrong value");
      expect_refusal([] { (void)barrier_async(); }, "an asynchronous collective did not refuse");
    });
    barrier_async().wait();
  });
  for (const auto& outcome : children.wait(30s)) {
    INFO(outcome.output);
    CHECK(outcome.exited_with(0));
  }
}

TEST_CASE("work: a rank killed with works in flight is an error of the others' works") {
  processes::child_processes children(3, [](int rank) {
    session own = init(processes::job_options(unique_name("work-kill"), rank, 3));
    auto first = all_gather_async(rank);
    expect(first.wait().size() == 3, "a wrong value");
    if (rank == 1) {
      ::raise(SIGKILL);
    }
    auto second = all_gather_async(std::string(1'000'000, 'x'));
    auto third = barrier_async();
    for (int time = 0; time < 2; ++time) {
      try {
        time == 0 ? (void)second.wait() : third.wait();
        throw std::runtime_error("nothing was thrown");
      } catch (const peer_error& problem) {
        expect(problem.peer() == 1 && problem.fatal(), problem.what());
      }
    }
  });
  const auto outcomes = children.wait(30s);
  CHECK(outcomes[1].killed_by(SIGKILL));
  for (const std::size_t rank : {std::size_t{0}, std::size_t{2}}) {
    INFO(outcomes[rank].output);
    CHECK(outcomes[rank].exited_with(0));
  }
}

TEST_CASE("work: a program may end as soon as its works are done") {
  for (int round = 0; round < 5; ++round) {
    processes::child_processes children(1, [&](int) {
      const int status = launch(3, [] {
        const auto half = world().split(rank() % 2);
        auto here = all_gather_async(rank());
        auto there = all_gather_async(rank(), half);
        expect(there.wait().size() == static_cast<std::size_t>(half.size()), "a wrong value");
        expect(here.wait().size() == 3, "a wrong value");
      });
      expect(status == 0, "launch returned something else than 0");
    });
    for (const auto& outcome : children.wait(60s)) {
      INFO(outcome.output);
      CHECK(outcome.exited_with(0));
    }
  }
}
