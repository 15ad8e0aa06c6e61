// SPDX-License-Identifier: MIT
// Groups that their members alone make.
#include <doctest/doctest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <unistd.h>
#include <csignal>
#include <functional>

#include "processes.hpp"

#include <hfcomm/testing.hpp>

namespace {

using namespace hfcomm;
using namespace std::chrono_literals;
using processes::job_options;
using processes::unique_name;

void require_that(bool condition, const char* what) {
  if (!condition) {
    throw std::runtime_error(what);
  }
}

std::vector<processes::outcome> outcomes_of(int ranks, const std::function<void(int)>& body) {
  processes::child_processes children(ranks, body);
  return children.wait(60s);
}

void check_all_exit_with_0(int ranks, const std::function<void(int)>& body) {
  for (const auto& outcome : outcomes_of(ranks, body)) {
    INFO(outcome.output);
    CHECK(outcome.exited_with(0));
  }
}

}  // namespace

TEST_CASE("connect: without a session, the members have a group, and the world stays as it is") {
  check_all_exit_with_0(3, [](int rank) {
    const auto group = connect(job_options(unique_name("alone"), rank, 3));
    require_that(group.rank() == rank && group.size() == 3, "a wrong group");
    require_that(group.host_backend() == "shared_memory" && group.timeout() == 60s, "a wrong engine or deadline");
    require_that(world_size() == 1 && !is_initialized(), "the world has changed");
    require_that(all_gather(rank, group) == std::vector<int>{0, 1, 2}, "a wrong result");
    require_that(all_reduce_async(1, reduce_op::sum, group).wait() == 3, "a wrong sum");
    require_that(send_receive(rank, (rank + 1) % 3, (rank + 2) % 3, group) == (rank + 2) % 3, "a wrong message");
    require_that(connect({.init_method = "job://one", .rank = 0, .world_size = 1}).size() == 1, "a wrong group of one");
  });
}

TEST_CASE("connect: inside a session, only the members take part, any number of times") {
  check_all_exit_with_0(4, [](int rank) {
    auto own = init(job_options(unique_name("session"), rank, 4));
    const std::string name = unique_name("part");
    std::vector<process_group> groups;
    for (int turn = 0; turn < 30; ++turn) {
      const int first = turn % 3;
      if (rank == first || rank == first + 1) {
        groups.push_back(connect(job_options(name + std::to_string(first), rank - first, 2)));
        require_that(all_gather(rank, groups.back()) == std::vector<int>{first, first + 1}, "a wrong result");
      }
    }
    require_that(all_reduce(1, reduce_op::sum) == 4, "a wrong world");
    for (const auto& group : groups) {
      barrier(group);
    }
    groups.clear();
    barrier();
  });
}

TEST_CASE("connect: a group may have its session's name, and outlive it") {
  check_all_exit_with_0(2, [](int rank) {
    const auto options = job_options(unique_name("same"), rank, 2);
    std::optional<process_group> group;
    {
      auto own = init(options);
      group = connect(options);
      barrier();
    }
    require_that(all_reduce(1, reduce_op::sum, *group) == 2, "a wrong result");
    auto own = init(options);
    barrier();
    require_that(all_reduce(1, reduce_op::sum, *group) == 2, "a wrong result in the second session");
  });
}

TEST_CASE("connect: the part ends with the last handle, that of a split group included") {
  check_all_exit_with_0(2, [](int rank) {
    const std::string name = unique_name("handles");
    std::optional<process_group> part;
    {
      const auto group = connect(job_options(name, rank, 2));
      part = group.split(0, -rank);
    }
    require_that(all_gather(rank, *part) == std::vector<int>{1, 0}, "a wrong result");
    const auto other = connect(job_options(name, rank, 2));
    if (rank == 1) {
      part.reset();
      barrier(other);
      return;
    }
    barrier(other);
    try {
      barrier(*part);
      throw std::runtime_error("nobody was missing");
    } catch (const peer_error& problem) {
      require_that(std::string(problem.what()).find("has left the job") != std::string::npos, problem.what());
    }
  });
}

TEST_CASE("connect: it leaves nothing behind") {
  check_all_exit_with_0(2, [](int rank) {
    const std::string name = unique_name("nothing");
    const auto turn = [&] { barrier(connect(job_options(name, rank, 2))); };
    turn();
    const auto before = processes::leftovers::count();
    for (int i = 0; i < 20; ++i) {
      turn();
    }
    require_that(processes::leftovers::count().descriptors == before.descriptors, "descriptors are left");
  });
}

TEST_CASE("connect: errors are those of init, at its line") {
  const auto outcomes = outcomes_of(3, [](int rank) {
    try {
      if (rank == 2) {
        (void)connect({.init_method = "job://x"});
      }
      auto options = job_options(unique_name("late"), rank, 3);
      options.start_timeout = 500ms;
      (void)connect(options);
    } catch (const timeout_error& problem) {
      require_that(problem.missing() == std::vector<int>{2} && problem.rank() == rank, "others are missing");
      processes::report(problem.what());
    } catch (const usage_error& problem) {
      processes::report(problem.what());
    }
  });
  for (std::size_t rank = 0; rank < 3; ++rank) {
    INFO(outcomes[rank].output);
    CHECK(outcomes[rank].exited_with(0));
    CHECK(outcomes[rank].output.find("connect at ") != std::string::npos);
    CHECK(outcomes[rank].output.find("connect_test.cpp:") != std::string::npos);
    CHECK(outcomes[rank].output.find(rank == 2 ? "needs rank and world_size" : "rank 2 did not come") !=
          std::string::npos);
  }
}

TEST_CASE("connect: a rank that cannot be a member gets a usage_error") {
  const auto text_of_refusal = [](const init_options& options) {
    try {
      (void)connect(options);
    } catch (const usage_error& problem) {
      return std::string(problem.what());
    }
    return std::string("not refused");
  };
  check_all_exit_with_0(1, [&](int) {
    require_that(launch(2,
                        [&] {
                          const auto text = text_of_refusal({});
                          return text.find("name the group by init_method") != std::string::npos ? 0 : 3;
                        }) == 0,
                 "not refused inside launch");
  });
  testing::run_ranks(2, [&](const process_group& world) {
    const auto text = text_of_refusal(job_options(unique_name("threads"), world.rank(), 2));
    CHECK(text.find("only processes can connect") != std::string::npos);
  });
}

TEST_CASE("connect: a member that dies, or that an exception ends, is named as in a session") {
  const auto outcomes = outcomes_of(3, [](int rank) {
    auto own = init(job_options(unique_name("deaths"), rank, 3));
    const auto text_of_loss = [&](const process_group& group) {
      try {
        barrier(group);
        return std::string("nobody was missing");
      } catch (const peer_error& problem) {
        return std::string(problem.what());
      }
    };
    {
      std::optional<process_group> group = connect(job_options(unique_name("throws"), rank, 3));
      if (rank == 1) {
        try {
          const process_group ends = *group;
          group.reset();
          throw std::runtime_error("out of luck");
        } catch (const std::runtime_error&) {
        }
      } else {
        processes::report(text_of_loss(*group));
      }
    }
    barrier();
    const auto group = connect(job_options(unique_name("dies"), 2 - rank, 3));
    if (rank == 2) {
      ::kill(::getpid(), SIGKILL);
    }
    processes::report(text_of_loss(group));
  });
  for (const std::size_t rank : {std::size_t{0}, std::size_t{1}}) {
    INFO(outcomes[rank].output);
    CHECK(outcomes[rank].exited_with(0));
    CHECK((rank == 1 || outcomes[rank].output.find("an exception ended its group") != std::string::npos));
    CHECK(outcomes[rank].output.find("rank 0 (pid ") != std::string::npos);
  }
}

TEST_CASE("connect: launch's record of a rank's end is found under its rank in another group") {
  processes::child_processes children(1, [](int) {
    const std::string name = unique_name("launched");
    require_that(launch(3,
                        [&] {
                          const auto group = connect(job_options(name, 2 - rank(), 3));
                          if (rank() == 2) {
                            ::kill(::getpid(), SIGKILL);
                          }
                          try {
                            barrier(group);
                          } catch (const peer_error& problem) {
                            require_that(
                                std::string(problem.what()).find("was killed by signal 9") != std::string::npos,
                                problem.what());
                            require_that(problem.peer() == 0, "another rank is blamed");
                            return 0;
                          }
                          return 3;
                        }) == 128 + SIGKILL,
                 "another status");
  });
  for (const auto& outcome : children.wait(30s)) {
    INFO(outcome.output);
    CHECK(outcome.exited_with(0));
  }
}
