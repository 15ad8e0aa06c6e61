// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <hfcomm/machine/waiting.hpp>

#include "processes.hpp"

using namespace hfcomm;
using namespace std::chrono_literals;
using processes::unique_name;

TEST_CASE("warning: a long wait prints the missing ranks once and continues") {
  processes::child_processes children(3, [](int rank) {
    ::setenv("HFCOMM_WARN_AFTER_MS", "200", 1);
    ::dup2(processes::report_pipe(), STDERR_FILENO);
    session own = init(processes::job_options(unique_name("warn"), rank, 3));
    barrier();
    if (rank == 1) {
      std::this_thread::sleep_for(700ms);
    }
    barrier();
  });
  const auto outcomes = children.wait(20s);
  for (const int rank : {0, 2}) {
    const auto& output = outcomes[static_cast<std::size_t>(rank)].output;
    INFO(output);
    CHECK(outcomes[static_cast<std::size_t>(rank)].exited_with(0));
    CHECK(output.find("barrier #2 at waiting_test.cpp:") != std::string::npos);
    CHECK(output.find("for rank 1: 1 last called barrier() at waiting_test.cpp:") != std::string::npos);
    CHECK(output.find("still waiting") == output.rfind("still waiting"));
  }
  CHECK(outcomes[1].output.empty());
}

TEST_CASE("master_first: a section may take longer than the group's timeout, and the death of its master ends it") {
  processes::child_processes children(3, [](int rank) {
    auto options = processes::job_options(unique_name("patience"), rank, 3);
    options.timeout = 300ms;
    session own = init(options);
    barrier();
    {
      const master_first guard;
      if (rank == 0) {
        std::this_thread::sleep_for(900ms);
      }
    }
    barrier();
    processes::report("waited");
    try {
      const master_first guard;
      if (rank == 0) {
        std::this_thread::sleep_for(50ms);
        ::raise(SIGKILL);
      }
    } catch (const peer_error& problem) {
      processes::report(problem.what());
    }
  });
  const auto began = processes::clock::now();
  const auto outcomes = children.wait(20s);
  CHECK(processes::clock::now() - began < 5s);
  for (const int rank : {1, 2}) {
    INFO(outcomes[static_cast<std::size_t>(rank)].output);
    CHECK(outcomes[static_cast<std::size_t>(rank)].output.find("waited\nrank " + std::to_string(rank) +
                                                               "/3: master_first") == 0);
    CHECK(outcomes[static_cast<std::size_t>(rank)].output.find("rank 0 (pid ") != std::string::npos);
  }
}

TEST_CASE("master_first: its own timeout ends the wait for the master") {
  processes::child_processes children(2, [](int rank) {
    session own = init(processes::job_options(unique_name("impatience"), rank, 2));
    try {
      const master_first guard(world(), 200ms);
      if (rank == 0) {
        std::this_thread::sleep_for(600ms);
      }
    } catch (const timeout_error& problem) {
      processes::report(problem.what());
    }
  });
  const auto outcomes = children.wait(20s);
  INFO(outcomes[1].output);
  CHECK(outcomes[1].output.find("rank 0 did not arrive at master_first #1") != std::string::npos);
  CHECK(outcomes[0].exited_with(0));  // its destructor did not throw
}

TEST_CASE("ranks_share_cores: ranks that a launcher has bound to one core each do not share it") {
  const int cores = detail::allowed_cores(0);
  const auto bind = [] {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(static_cast<std::size_t>(::sched_getcpu()), &set);
    processes::report(std::to_string(::sched_setaffinity(0, sizeof(set), &set)));
  };
  processes::child_processes children(1, [&](int) {
    bind();
    const auto say = [&] {
      processes::report(detail::ranks_share_cores(cores, true) ? "shares" : "has its own");
      processes::report(detail::ranks_share_cores(cores + 1, true) ? "shares" : "has its own");
      processes::report(detail::ranks_share_cores(cores, false) ? "threads share" : "threads have their own");
    };
    say();
    // Its own child has no more cores than it.
    processes::child_processes grandchild(1, [&](int) { say(); });
    processes::report(grandchild.wait(10s).front().output);
  });
  const std::string threads = cores > 1 ? "threads share\n" : "threads have their own\n";
  const std::string child = cores > 1 ? "shares\n" : "has its own\n";
  CHECK(children.wait(20s).front().output ==
        "0\nhas its own\nshares\n" + threads + child + "shares\n" + threads + "\n");
}
