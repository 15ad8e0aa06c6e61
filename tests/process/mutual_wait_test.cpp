// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include <hfcomm/ddp.hpp>

#include "processes.hpp"

// Ranks that wait for each other in two groups.
namespace {

using namespace hfcomm;
using namespace std::chrono_literals;
using processes::unique_name;

/// A model of two parameters and a buffer.
struct left_model {
  explicit left_model(ddp_options options = {})
      : ddp({named_parameter("first", values, gradients), named_parameter("second", more_values, more_gradients)},
            {named_buffer("statistics", statistics)}, options) {}

  void mark_all() {
    ddp.begin_forward();
    ddp.mark_ready(0);
    ddp.mark_ready(1);
  }
  void pass() {
    mark_all();
    ddp.finish();
  }

  std::vector<float> values = std::vector<float>(4), gradients = values;
  std::vector<float> more_values = std::vector<float>(1000), more_gradients = more_values;
  std::vector<float> statistics = std::vector<float>(3);
  distributed_data_parallel ddp;
};

/// Runs `body` on `ranks` ranks, which report the error that they get, if any. Both waits count after 300 ms.
std::vector<processes::outcome> mutual_outcomes(int ranks, void (*body)(int rank)) {
  processes::child_processes children(ranks, [&](int rank) {
    ::setenv("HFCOMM_WARN_AFTER_MS", "300", 1);
    ::dup2(processes::report_pipe(), STDERR_FILENO);
    session own = init(processes::job_options(unique_name("mutual"), rank, ranks));
    try {
      body(rank);
      processes::report("done.");
    } catch (const peer_error& problem) {
      processes::report(problem.what());
    }
  });
  return children.wait(60s);
}

void check_told(const processes::outcome& outcome, const std::string& leaver, const std::string& call) {
  INFO(outcome.output);
  CHECK(outcome.exited_with(0));
  CHECK(outcome.output.find("rank " + leaver + " (pid ") != std::string::npos);
  CHECK(outcome.output.find("waits for rank ") != std::string::npos);
  CHECK(outcome.output.find(" in " + call) != std::string::npos);
  CHECK(outcome.output.find("it has left a loop before the others") != std::string::npos);
}

TEST_CASE("mutual wait: a rank that leaves the training loop for another group's collective is told in the next pass") {
  for (const int ranks : {2, 3}) {
    const auto outcomes = mutual_outcomes(ranks, [](int rank) {
      left_model model(ddp_options{.bucket_bytes = 8, .broadcast_buffers = false});
      for (int pass = 0; pass < (rank == 1 ? 2 : 4); ++pass) {
        model.pass();
      }
      barrier();
    });
    check_told(outcomes[0], "1", "barrier #");
    INFO(outcomes[1].output);
    CHECK(outcomes[1].exited_with(0));
    CHECK(outcomes[1].output.find("rank 0 (pid ") != std::string::npos);
    if (ranks == 3) {
      check_told(outcomes[2], "1", "barrier #");
    }
  }
}

TEST_CASE("mutual wait: the same where the calling thread reduces, and the leaver waits with a value") {
  const auto outcomes = mutual_outcomes(2, [](int rank) {
    left_model model(ddp_options{.reduce_on_calling_thread = true, .broadcast_buffers = false});
    for (int pass = 0; pass < 2 + rank; ++pass) {
      model.pass();
    }
    static_cast<void>(all_reduce(rank, reduce_op::sum));
  });
  check_told(outcomes[1], "0", "all_reduce<int> #");
}

TEST_CASE("mutual wait: ranks that train two models in another order") {
  const auto outcomes = mutual_outcomes(2, [](int rank) {
    const ddp_options options{.broadcast_buffers = false};
    left_model one(options);
    left_model other(options);
    one.pass();
    other.pass();
    rank == 0 ? one.pass() : other.pass();
  });
  for (const auto& outcome : outcomes) {
    INFO(outcome.output);
    CHECK(outcome.exited_with(0));
  }
  const std::string both = outcomes[0].output + outcomes[1].output;  // of one the other's end may come first
  CHECK(both.find("it has left a loop before the others") != std::string::npos);
}

TEST_CASE("mutual wait: a rank that computes for long is none, and the warning says where the others wait") {
  const auto outcomes = mutual_outcomes(3, [](int rank) {
    left_model model(ddp_options{.broadcast_buffers = false});
    model.pass();
    model.mark_all();
    if (rank == 1) {
      barrier();  // before the averages are needed
    }
    if (rank == 2) {
      std::this_thread::sleep_for(1500ms);
      barrier();
    }
    if (rank == 0) {
      std::this_thread::sleep_for(1000ms);
      barrier();
    }
    model.ddp.finish();
    if (rank == 0) {
      std::this_thread::sleep_for(1000ms);  // others wait in finish for nobody, and in the barrier for this rank
    }
    barrier();
    model.pass();
  });
  for (const auto& outcome : outcomes) {
    INFO(outcome.output);
    CHECK(outcome.exited_with(0));
    CHECK(outcome.output.find("done.") != std::string::npos);
  }
  INFO(outcomes[1].output);
  CHECK(outcomes[1].output.find("still waiting") != std::string::npos);
}

}  // namespace
