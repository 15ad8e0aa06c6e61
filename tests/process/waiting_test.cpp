// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <hfcomm/machine/waiting.hpp>

#include "processes.hpp"

using namespace hfcomm;
using namespace std::chrono_literals;
using processes::unique;

TEST_CASE("warning: a long wait prints the missing ranks once and continues") {
  processes::family family(3, [](int rank) {
    ::setenv("HFCOMM_WARN_AFTER_MS", "200", 1);
    ::dup2(processes::voice(), STDERR_FILENO);
    session own = init(processes::job(unique("warn"), rank, 3));
    barrier();
    if (rank == 1) {
      std::this_thread::sleep_for(700ms);
    }
    barrier();
  });
  const auto outcomes = family.wait(20s);
  for (const int rank : {0, 2}) {
    const auto& said = outcomes[static_cast<std::size_t>(rank)].said;
    INFO(said);
    CHECK(outcomes[static_cast<std::size_t>(rank)].exited_with(0));
    CHECK(said.find("barrier #2 at waiting_test.cpp:") != std::string::npos);
    CHECK(said.find("for rank 1: 1 last called barrier() at waiting_test.cpp:") != std::string::npos);
    CHECK(said.find("still waiting") == said.rfind("still waiting"));
  }
  CHECK(outcomes[1].said.empty());
}

TEST_CASE("master_first: a section may take longer than the group's timeout, and the death of its master ends it") {
  processes::family family(3, [](int rank) {
    auto options = processes::job(unique("patience"), rank, 3);
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
    processes::say("waited");
    try {
      const master_first guard;
      if (rank == 0) {
        std::this_thread::sleep_for(50ms);
        ::raise(SIGKILL);
      }
    } catch (const peer_error& problem) {
      processes::say(problem.what());
    }
  });
  const auto began = processes::clock::now();
  const auto outcomes = family.wait(20s);
  CHECK(processes::clock::now() - began < 5s);
  for (const int rank : {1, 2}) {
    INFO(outcomes[static_cast<std::size_t>(rank)].said);
    CHECK(outcomes[static_cast<std::size_t>(rank)].said.find("waited\nrank " + std::to_string(rank) +
                                                             "/3: master_first") == 0);
    CHECK(outcomes[static_cast<std::size_t>(rank)].said.find("rank 0 (pid ") != std::string::npos);
  }
}

TEST_CASE("master_first: its own timeout ends the wait for the master") {
  processes::family family(2, [](int rank) {
    session own = init(processes::job(unique("impatience"), rank, 2));
    try {
      const master_first guard(world(), 200ms);
      if (rank == 0) {
        std::this_thread::sleep_for(600ms);
      }
    } catch (const timeout_error& problem) {
      processes::say(problem.what());
    }
  });
  const auto outcomes = family.wait(20s);
  INFO(outcomes[1].said);
  CHECK(outcomes[1].said.find("rank 0 did not arrive at master_first #1") != std::string::npos);
  CHECK(outcomes[0].exited_with(0));  // its destructor did not throw
}

TEST_CASE("ranks_share_cores: ranks that a launcher has bound to one core each do not share it") {
  const int cores = detail::allowed_cores(0);
  const auto bind = [] {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(static_cast<std::size_t>(::sched_getcpu()), &set);
    processes::say(std::to_string(::sched_setaffinity(0, sizeof(set), &set)));
  };
  processes::family family(1, [&](int) {
    bind();
    const auto say = [&] {
      processes::say(detail::ranks_share_cores(cores, true) ? "shares" : "has its own");
      processes::say(detail::ranks_share_cores(cores + 1, true) ? "shares" : "has its own");
      processes::say(detail::ranks_share_cores(cores, false) ? "threads share" : "threads have their own");
    };
    say();
    // Its own child has no more cores than it.
    processes::family grandchild(1, [&](int) { say(); });
    processes::say(grandchild.wait(10s).front().said);
  });
  const std::string threads = cores > 1 ? "threads share\n" : "threads have their own\n";
  const std::string child = cores > 1 ? "shares\n" : "has its own\n";
  CHECK(family.wait(20s).front().said == "0\nhas its own\nshares\n" + threads + child + "shares\n" + threads + "\n");
}
