// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <chrono>
#include <cstdlib>
#include <string>

#include <hfcomm/comm.hpp>

#include "../process/processes.hpp"

namespace {

using processes::count_of;
using processes::report;

/// Reports its end, if it was told of a rank.
struct closes_log {
  int rank = -1;
  ~closes_log() {
    if (rank >= 0) {
      report("closed log of rank " + std::to_string(rank));
    }
  }
};
closes_log log_of_program;  // NOLINT(*global-variables): the subject

processes::outcome run_job(bool runs_all, int status) {
  hfcomm::launch_options options;
  options.processes = 2;
  options.runs_all_exit_handlers = runs_all;
  processes::child_processes parent(1, [&](int) {
    std::atexit([] { report("handler of the parent"); });
    const int result = hfcomm::launch(options, [&] {
      static closes_log log_of_rank;
      log_of_rank.rank = hfcomm::rank();
      log_of_program.rank = 10 + hfcomm::rank();
      std::atexit([] { report("handler of a rank"); });
      return status;
    });
    report("launch returned " + std::to_string(result));
  });
  return parent.wait(std::chrono::seconds(60)).front();
}

TEST_CASE("the end of a rank: what was made in it is destroyed, and what was there before is not") {
  for (const int status : {0, 5}) {
    const auto done = run_job(false, status);
    INFO(done.output);
    CHECK(count_of(done.output, "closed log of rank 0\n") == 1);
    CHECK(count_of(done.output, "closed log of rank 1\n") == 1);
    CHECK(count_of(done.output, "handler of a rank\n") == 2);
    CHECK(count_of(done.output, "handler of the parent\n") == 0);
    CHECK(count_of(done.output, "closed log of rank 1") == 1);
    CHECK(count_of(done.output, "launch returned " + std::to_string(status)) == 1);
  }
}

TEST_CASE("the end of a rank: everything is destroyed where that is wanted") {
  const auto done = run_job(true, 0);
  INFO(done.output);
  CHECK(count_of(done.output, "handler of the parent\n") == 2);
  CHECK(count_of(done.output, "closed log of rank 10\n") == 1);
  CHECK(count_of(done.output, "closed log of rank 11\n") == 1);
  CHECK(count_of(done.output, "launch returned 0") == 1);
}

}  // namespace
