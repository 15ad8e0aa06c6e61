// SPDX-License-Identifier: MIT
#pragma once

#include <doctest/doctest.h>

#include <chrono>
#include <functional>
#include <string>

#include <hfcomm/comm.hpp>

#include "processes.hpp"

namespace processes {

/// Runs a job of so many ranks, all of which must end well: `before(rank)` comes before `init`, `body()` after it.
inline void run_well(const std::string& name, int ranks, const std::function<void(int)>& before,
                     const std::function<void()>& body) {
  const std::string job = unique_name(name);
  child_processes children(ranks, [&](int rank) {
    before(rank);
    hfcomm::session own = hfcomm::init(job_options(job, rank, ranks));
    body();
    hfcomm::barrier();
  });
  for (const auto& outcome : children.wait(std::chrono::seconds(60))) {
    CHECK_MESSAGE(outcome.exited_with(0), outcome.output);
  }
}

}  // namespace processes
