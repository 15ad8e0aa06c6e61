// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <sys/resource.h>

#include "processes.hpp"

using namespace hfcomm;
using namespace std::chrono_literals;
using processes::unique_name;

namespace {

/// Limits this process to `more` further open files during its lifetime.
class descriptor_limit {
 public:
  explicit descriptor_limit(rlim_t more) {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    rlimit tight = before_;
    tight.rlim_cur = lowest_free() + more;
    ::setrlimit(RLIMIT_NOFILE, &tight);
  }
  descriptor_limit(const descriptor_limit&) = delete;
  descriptor_limit& operator=(const descriptor_limit&) = delete;
  ~descriptor_limit() { ::setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  /// Returns the lowest unused descriptor after filling all gaps below it.
  static rlim_t lowest_free() {
    const int highest = 60;
    for (int fd = ::dup(STDERR_FILENO); fd < highest; fd = ::dup(STDERR_FILENO)) {
    }
    ::close(highest);
    return static_cast<rlim_t>(highest);
  }

  rlimit before_{};
};

void expect_failure(int limited, rlim_t descriptors, const std::string& reason) {
  constexpr int ranks = 4;
  CAPTURE(limited);
  CAPTURE(descriptors);
  const std::string name = unique_name("limited-" + std::to_string(limited) + '-' + std::to_string(descriptors));
  processes::child_processes children(ranks, [&](int rank) {
    session own = init(processes::job_options(name, rank, ranks));
    const auto attempt = [&] {
      try {
        (void)world().subgroup({0, 1, 2});
        processes::report("nothing was thrown");
      } catch (const engine_error& problem) {
        processes::report("engine_error " + problem.detail());
      } catch (const peer_error& problem) {
        processes::report("peer " + std::to_string(problem.peer()) + " said " + problem.detail());
      }
    };
    if (rank == limited) {
      const descriptor_limit limit(descriptors);
      attempt();
    } else {
      attempt();
    }
    const auto group = world().subgroup({2, 1, 0});
    processes::report("sum " + std::to_string(group ? all_reduce(rank, reduce_op::sum, *group) : 3));
    barrier();
  });
  const auto outcomes = children.wait(30s);  // the deadline of the operations is 60 s
  for (int rank = 0; rank < ranks; ++rank) {
    const auto& outcome = outcomes[static_cast<std::size_t>(rank)];
    CAPTURE(rank);
    INFO(outcome.output);
    CHECK(outcome.exited_with(0));
    CHECK(outcome.output.find(rank == limited ? "engine_error " : "peer " + std::to_string(limited) + " said ") == 0);
    CHECK(outcome.output.find(reason) != std::string::npos);
    CHECK(outcome.output.find("sum 3\n") != std::string::npos);
  }
}

}  // namespace

TEST_CASE("subgroup: where a rank ends because another one was killed, both are named") {
  const std::string name = unique_name("second-culprit");
  processes::child_processes children(3, [&](int rank) {
    session own = init(processes::job_options(name, rank, 3));
    const auto pair = world().split(rank == 2 ? 1 : 0);
    if (rank == 2) {
      std::this_thread::sleep_for(100ms);
      ::raise(SIGKILL);
    }
    if (rank == 1) {
      barrier();  // waits for rank 2, learns of its death, and ends
    }
    barrier(pair);  // rank 0 knows nothing of rank 2
  });
  const auto outcomes = children.wait(30s);
  INFO(outcomes[0].output);
  CHECK(outcomes[0].output.find("rank 1 (pid " + std::to_string(children.pid(1))) != std::string::npos);
  CHECK(outcomes[0].output.find("also, rank 2 of the job (pid " + std::to_string(children.pid(2))) !=
        std::string::npos);
}

TEST_CASE("subgroup: a rank that catches the error of another one's death itself holds up no third one") {
  // Its exception would be waited for 300 ms. A busy machine may hold up a rank for as long, but not always.
  std::string output;
  for (int attempt = 0; attempt < 5 && output.find("told at once") == std::string::npos; ++attempt) {
    const std::string name = unique_name("caught-" + std::to_string(attempt));
    processes::child_processes children(3, [&](int rank) {
      session own = init(processes::job_options(name, rank, 3));
      try {
        const auto pair = world().split(rank == 2 ? 1 : 0);
        const auto begin = std::chrono::steady_clock::now();
        if (rank == 2) {
          std::this_thread::sleep_for(100ms);
          ::raise(SIGKILL);
        }
        try {
          barrier(rank == 1 ? world() : pair);
        } catch (const peer_error& problem) {
          const bool is_late = std::chrono::steady_clock::now() - begin > 300ms;
          processes::report((is_late ? "late: " : "told at once: ") + std::string(problem.what()));
          throw;
        }
      } catch (const peer_error&) {
        std::this_thread::sleep_for(1s);  // its session goes on
      }
    });
    output = children.wait(30s)[0].output;
  }
  INFO(output);
  CHECK(output.find("told at once") != std::string::npos);
  CHECK(output.find("left the group because of an exception") != std::string::npos);
  CHECK(output.find("also, rank 2 of the job") != std::string::npos);
}

TEST_CASE("subgroup: a rank that runs out of file descriptors is named on every rank at once") {
  expect_failure(2, 0, "creating a local socket");
  expect_failure(1, 1, "the group's memory could not be taken");
}

TEST_CASE("subgroup: a first rank that runs out of file descriptors is named on every rank at once") {
  expect_failure(0, 0, "memfd_create");
  expect_failure(0, 1, "creating a local socket");
  expect_failure(0, 2, "taking a connection");
}
