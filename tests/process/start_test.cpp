// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <cstdio>
#include <functional>
#include <optional>
#include <string>

#include <fcntl.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>
#include <csignal>

#include <hfcomm/machine/unix_socket.hpp>

#include "processes.hpp"

// The start of a job, and what the process that starts it may have done before.
namespace {

using namespace hfcomm;
using namespace std::chrono_literals;
using processes::unique_name;

void check_all_exited_with_0(processes::child_processes& children) {
  for (const auto& outcome : children.wait(60s)) {
    INFO(outcome.output);
    CHECK(outcome.exited_with(0));
  }
}

TEST_CASE("init: a stranger that fills the backlog of the job's name cannot hold it beyond the start timeout") {
  const std::string name = unique_name("backlog");
  const std::string socket = rendezvous::socket_name("job://" + name);
  const rendezvous::unique_fd listener(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  const auto [address, length] = rendezvous::abstract_address(socket);
  REQUIRE(::bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), length) == 0);
  REQUIRE(::listen(listener.get(), 0) == 0);
  const auto connection = rendezvous::connect_to(socket);
  REQUIRE(connection);
  processes::child_processes children(3, [&](int rank) {
    auto options = processes::job_options(name, rank, 3);
    options.start_timeout = 1s;
    try {
      session own = init(options);
    } catch (const error& problem) {
      processes::report(problem.what());
    }
  });
  const auto outcomes = children.wait(15s);
  for (int rank = 0; rank < 3; ++rank) {
    const auto& outcome = outcomes[static_cast<std::size_t>(rank)];
    INFO(outcome.output);
    CHECK(outcome.exited_with(0));
    CHECK(outcome.output.find(rank == 0 ? "another process already waits" : "timed out") != std::string::npos);
  }
}

TEST_CASE("init: sessions follow each other under one name without any collective between") {
  for (const int ranks : {2, 3}) {
    const std::string name = unique_name("row-" + std::to_string(ranks));
    processes::child_processes children(ranks, [&](int rank) {
      for (int turn = 0; turn < 200; ++turn) {
        session own = init(processes::job_options(name, rank, ranks));
      }
    });
    check_all_exited_with_0(children);
  }
}

/// Runs a job in which one rank can only fail, after `limit`. All ranks must throw an engine_error with both texts.
void check_all_say(const std::string& name, int rank_that_fails, const std::function<void()>& limit,
                   const std::string& who, const std::string& why) {
  processes::child_processes children(3, [&](int rank) {
    if (rank == rank_that_fails) {
      limit();
    }
    try {
      session own = init(processes::job_options(name, rank, 3));
    } catch (const engine_error& problem) {
      processes::report(problem.what());
    }
  });
  for (const auto& outcome : children.wait(20s)) {
    INFO(outcome.output);
    CHECK(outcome.exited_with(0));
    CHECK(outcome.output.find(who) != std::string::npos);
    CHECK(outcome.output.find(why) != std::string::npos);
  }
}

TEST_CASE("init: where rank 0 cannot make the job's memory, all ranks say why") {
  const auto limit = [] {
    const rlimit least{100'000, 100'000};
    ::setrlimit(RLIMIT_FSIZE, &least);
  };
  check_all_say(unique_name("no-memory"), 0, limit, "rank 0 cannot make the job's memory: ", "ulimit -f");
}

TEST_CASE("init: where a rank cannot take the job's memory, all ranks say which and why") {
  const auto limit = [] {
    const int next = ::open("/dev/null", O_RDONLY);
    const rlimit few{static_cast<rlim_t>(next + 1), static_cast<rlim_t>(next + 1)};
    ::close(next);
    ::setrlimit(RLIMIT_NOFILE, &few);  // room for the connection only
  };
  check_all_say(unique_name("no-descriptors"), 2, limit, "rank 2 cannot take the job's memory: ", "ulimit -n");
}

TEST_CASE("init: the first rank that gives up ends the start, and all learn who is missing") {
  const std::string name = unique_name("impatient");
  processes::child_processes children(3, [&](int rank) {
    auto options = processes::job_options(name, rank, 3);
    if (rank == 1) {
      options.start_timeout = 500ms;
    }
    if (rank == 2) {
      return;
    }
    try {
      session own = init(options);
    } catch (const timeout_error& problem) {
      processes::report(problem.what());
    }
  });
  const auto outcomes = children.wait(20s);
  for (const int rank : {0, 1}) {
    CHECK(outcomes[static_cast<std::size_t>(rank)].output.find("rank 2 did not come") != std::string::npos);
  }
}

TEST_CASE("init: a user whom the kernel shows as the overflow user is told from nobody, and is refused") {
  const std::string name = unique_name("overflow-user");
  processes::child_processes children(2, [&](int rank) {
    if (::unshare(CLONE_NEWUSER) != 0) {
      processes::report("skipped");
      return;
    }
    auto options = processes::job_options(name, rank, 2);
    options.start_timeout = 2s;
    try {
      session own = init(options);
    } catch (const error& problem) {
      processes::report(problem.what());
    }
  });
  const auto outcomes = children.wait(20s);
  if (outcomes[1].output.find("skipped") != std::string::npos) {
    std::printf("[hfcomm] skipped: init: the overflow user: this process may not make a user namespace\n");
    return;
  }
  INFO(outcomes[0].output, outcomes[1].output);
  CHECK(outcomes[0].output.find("rank 1 did not come") != std::string::npos);
  CHECK(outcomes[1].output.find("in this user namespace: run as another user") != std::string::npos);
}

TEST_CASE("init: in a process without standard streams, printed text does not reach the group's memory") {
  const std::string name = unique_name("closed-streams");
  processes::child_processes children(2, [&](int rank) {
    for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
      ::close(stream);
    }
    session own = init(processes::job_options(name, rank, 2));
    const process_group half = world().split(0);
    for (int turn = 0; turn < 200; ++turn) {
      for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
        const std::string text(300, 'x');
        (void)!::write(stream, text.data(), text.size());
      }
      if (all_gather(turn) != std::vector<int>{turn, turn} || all_reduce(turn, reduce_op::sum, half) != 2 * turn) {
        throw std::runtime_error("wrong values");
      }
    }
  });
  check_all_exited_with_0(children);
}

TEST_CASE("init: it warns which ranks have not come, on rank 0, and on the others that rank 0 has not") {
  for (const int late : {0, 2}) {
    const std::string name = unique_name("late-" + std::to_string(late));
    processes::child_processes children(3, [&](int rank) {
      ::dup2(processes::report_pipe(), STDERR_FILENO);
      ::setenv("HFCOMM_WARN_AFTER_MS", "1000", 1);
      if (rank == late) {
        std::this_thread::sleep_for(3s);
      }
      session own = init(processes::job_options(name, rank, 3));
    });
    const auto outcomes = children.wait(20s);
    for (int rank = 0; rank < 3; ++rank) {
      const auto& outcome = outcomes[static_cast<std::size_t>(rank)];
      INFO(outcome.output);
      CHECK(outcome.exited_with(0));
      const bool warns = late == 0 ? rank != 0 : rank == 0;
      CHECK((outcome.output ==
             (warns ? "[hfcomm] init: still waiting after 1 s for rank " + std::to_string(late) + " to start\n" : "")));
    }
  }
}

/// Is destroyed after the session below, and finds a world of one.
struct world_user {
  ~world_user() {
    if (is_armed) {
      processes::report("at the end, rank " + std::to_string(rank()) + " of " + std::to_string(world_size()));
    }
  }
  bool is_armed = false;
};
world_user user_of_the_world;
std::optional<session> global_session;

TEST_CASE("session: it may be a global, which is destroyed after what was made during main") {
  const std::string name = unique_name("global-session");
  processes::child_processes children(2, [&](int rank) {
    user_of_the_world.is_armed = true;
    global_session.emplace(init(processes::job_options(name, rank, 2)));
    barrier();
    std::exit(0);
  });
  for (const auto& outcome : children.wait(20s)) {
    CHECK(outcome.exited_with(0));
    CHECK(outcome.output == "at the end, rank 0 of 1\n");
  }
}

}  // namespace
