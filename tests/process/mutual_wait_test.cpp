// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include <unistd.h>

#include <hfcomm/ddp.hpp>

#include "processes.hpp"

// Ranks that wait for each other in two groups.
namespace {

using namespace hfcomm;
using namespace std::chrono_literals;
using processes::unique_name;

/// A model of two parameters. Its buckets are small, so that a pass has two.
struct two_parameters {
  explicit two_parameters(ddp_options options = {})
      : ddp({named_parameter("first", values, gradients), named_parameter("second", more_values, more_gradients)},
            with_small_buckets(options)) {}

  static ddp_options with_small_buckets(ddp_options options) {
    options.first_bucket_bytes = 8;
    options.bucket_bytes = 8;
    return options;
  }
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
  distributed_data_parallel ddp;
};

/// Runs `body` on `ranks` ranks. Returns what they print: the error that they get, or "done.". Ranks that wait for each
/// other get it after 400 ms.
std::vector<processes::outcome> mutual_outcomes(int ranks, void (*body)(int rank)) {
  processes::child_processes children(ranks, [&](int rank) {
    ::setenv("HFCOMM_WARN_AFTER_MS", "400", 1);
    ::dup2(processes::report_pipe(), STDERR_FILENO);
    session own = init(processes::job_options(unique_name("mutual"), rank, ranks));
    try {
      body(rank);
      processes::report("done.");
    } catch (const peer_error& problem) {
      processes::report(problem.what());
    }
  });
  auto outcomes = children.wait(60s);
  for (const auto& outcome : outcomes) {
    INFO(outcome.output);
    CHECK(outcome.exited_with(0));
  }
  return outcomes;
}

bool contains(const processes::outcome& outcome, const std::string& text) {
  return outcome.output.find(text) != std::string::npos;
}

void check_told(const processes::outcome& outcome, const std::string& leaver, const std::string& call) {
  INFO(outcome.output);
  CHECK(contains(outcome, "rank " + leaver + " (pid "));
  CHECK(contains(outcome, " waits in " + call));
  CHECK(contains(outcome, " of this group, which waits for it"));
  CHECK(contains(outcome, "it has left a loop before the others"));
}

void check_done(const std::vector<processes::outcome>& outcomes) {
  for (const auto& outcome : outcomes) {
    INFO(outcome.output);
    CHECK(contains(outcome, "done."));
  }
}

TEST_CASE("mutual wait: a rank that leaves the training loop for another group's collective is told in the next pass") {
  for (const int ranks : {2, 3}) {
    const auto outcomes = mutual_outcomes(ranks, [](int rank) {
      two_parameters model;
      for (int pass = 0; pass < (rank == 1 ? 2 : 4); ++pass) {
        model.pass();
      }
      barrier();
    });
    check_told(outcomes[0], "1", "barrier #");
    INFO(outcomes[1].output);
    CHECK_FALSE(contains(outcomes[1], "done."));  // the others have ended
    CHECK(contains(outcomes[1], "barrier #"));
    if (ranks == 3) {
      check_told(outcomes[2], "1", "barrier #");
    }
  }
}

TEST_CASE("mutual wait: it is told where the calling thread reduces") {
  const auto outcomes = mutual_outcomes(2, [](int rank) {
    two_parameters model(ddp_options{.reduce_on_calling_thread = true});
    for (int pass = 0; pass < 2 + rank; ++pass) {
      model.pass();
    }
    static_cast<void>(all_reduce(rank, reduce_op::sum));
  });
  check_told(outcomes[1], "0", "all_reduce<int> #");
}

TEST_CASE("mutual wait: ranks that train two models in another order are told") {
  const auto outcomes = mutual_outcomes(2, [](int rank) {
    two_parameters one;
    two_parameters other;
    one.pass();
    other.pass();
    rank == 0 ? one.pass() : other.pass();
  });
  // The first one that is told ends, and the other one may learn that instead.
  INFO(outcomes[0].output, outcomes[1].output);
  CHECK((contains(outcomes[0], "it has left a loop before") || contains(outcomes[1], "it has left a loop before")));
  CHECK_FALSE((contains(outcomes[0], "done.") || contains(outcomes[1], "done.")));
}

TEST_CASE("mutual wait: a rank that computes before it comes breaks nothing") {
  const auto outcomes = mutual_outcomes(2, [](int rank) {
    two_parameters model;
    model.pass();
    if (rank == 1) {
      barrier();  // before its pass
      model.pass();
    } else {
      model.mark_all();  // its thread for gradients waits for rank 1
      std::this_thread::sleep_for(1500ms);
      barrier();
      model.ddp.finish();
    }
    barrier();
  });
  check_done(outcomes);
  INFO(outcomes[0].output);
  CHECK(contains(outcomes[0], "still waiting"));
  CHECK(contains(outcomes[0], ", and waits in barrier #"));
}

TEST_CASE("mutual wait: a thread that has come to the other group before may come again") {
  const auto outcomes = mutual_outcomes(2, [](int rank) {
    const process_group saving = world().split(0);
    two_parameters model;
    if (rank == 1) {
      barrier(saving);
      model.pass();
      barrier(saving);
      model.pass();
    } else {
      std::thread saver([&] {
        barrier(saving);
        std::this_thread::sleep_for(1500ms);
        barrier(saving);
      });
      model.pass();
      model.pass();
      saver.join();
    }
  });
  check_done(outcomes);
}

TEST_CASE("mutual wait: one that has ended does not count") {
  const auto outcomes = mutual_outcomes(2, [](int rank) {
    two_parameters model;
    model.pass();
    if (rank == 0) {
      std::this_thread::sleep_for(300ms);
    }
    barrier();
    if (rank == 1) {
      std::this_thread::sleep_for(900ms);
    }
    model.pass();
  });
  check_done(outcomes);
}

}  // namespace
