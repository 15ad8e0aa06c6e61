// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "processes.hpp"

#include <hfcomm/collectives/all_gather.hpp>
#include <hfcomm/core/error.hpp>

using namespace hfcomm;
using namespace std::chrono_literals;

TEST_CASE("tuning: a table that one rank cannot read fails the first operation on every rank, and no later one") {
  const std::string name = processes::unique_name("wrong-tuning");
  processes::child_processes children(3, [&](int rank) {
    if (rank == 1) {
      ::setenv("HFCOMM_TUNING", "/no/such/table", 1);
    }
    session own = init(processes::job_options(name, rank, 3));
    std::string told = "nothing";
    try {
      (void)all_gather(rank);
    } catch (const usage_error& problem) {
      told = std::string("usage_error: ") + problem.what();
    } catch (const peer_error& problem) {
      told = std::string("peer_error: ") + problem.what();
    }
    processes::report(told);
    ::unsetenv("HFCOMM_TUNING");
    processes::report(all_gather(rank) == std::vector{0, 1, 2} ? "usable" : "wrong");
  });
  const auto outcomes = children.wait(20s);
  for (std::size_t rank = 0; rank < outcomes.size(); ++rank) {
    const auto& outcome = outcomes[rank];
    INFO("rank ", rank, ": ", outcome.output);
    CHECK(outcome.exited_with(0));
    CHECK(outcome.output.find(rank == 1 ? "usage_error: " : "peer_error: ") == 0);
    CHECK(outcome.output.find("the table /no/such/table cannot be read") != std::string::npos);
    CHECK(outcome.output.find("usable") != std::string::npos);
  }
}
