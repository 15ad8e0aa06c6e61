// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <cstdlib>
#include <string>

#include "processes.hpp"

#include <hfcomm/group/session.hpp>

using namespace hfcomm;
using namespace std::chrono_literals;

TEST_CASE("tuning: a table that one rank cannot read ends init on every rank with that rank's reason") {
  const std::string name = processes::unique_name("wrong-tuning");
  processes::child_processes children(3, [&](int rank) {
    if (rank == 1) {
      ::setenv("HFCOMM_TUNING", "/no/such/table", 1);
    }
    const session own = init(processes::job_options(name, rank, 3));
    processes::report("init did not fail");
  });
  for (const auto& outcome : children.wait(20s)) {
    INFO(outcome.output);
    CHECK(outcome.exited_with(1));
    CHECK(outcome.output.find("init at tuning_process_test.cpp") != std::string::npos);
    CHECK(outcome.output.find("rank 1 cannot take the job's memory: the table /no/such/table cannot be read") !=
          std::string::npos);
  }
}
