// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <hfcomm/ddp.hpp>

#include "processes.hpp"

using namespace hfcomm;

namespace {

/// Whether `call` is refused because of the fork.
template <class Call>
bool refused(Call call) {
  try {
    call();
  } catch (const usage_error& problem) {
    return std::string(problem.what()).find("before a fork") != std::string::npos;
  }
  return false;
}

}  // namespace

TEST_CASE("ddp: the child of a fork may not use it and destroys it without waiting, and the parent continues") {
  const std::string name = processes::unique_name("ddp-fork");
  processes::child_processes children(2, [&](int rank) {
    session own = init(processes::job_options(name, rank, 2));
    std::vector<float> value(4);
    std::vector<float> gradient(4, static_cast<float>(rank));
    auto ddp = std::make_unique<distributed_data_parallel>(std::vector{named_parameter("a", value, gradient)});
    // The first pass starts the thread that averages; the barrier gives it time to wait for more.
    ddp->mark_ready(0);
    ddp->finish();
    gradient.assign(4, static_cast<float>(rank));
    barrier();
    std::fflush(nullptr);
    if (const pid_t child = ::fork(); child == 0) {
      ::alarm(60);
      const bool all = refused([&] { ddp->begin_forward(); }) && refused([&] { ddp->mark_ready(0); }) &&
                       refused([&] { ddp->finish(); }) && refused([&] { ddp->abandon_pass(); });
      ddp.reset();
      ::_exit(all ? 0 : 1);
    } else {
      int status = 0;
      ::waitpid(child, &status, 0);
      if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        throw std::runtime_error("the child failed with status " + std::to_string(status));
      }
    }
    ddp->begin_forward();
    ddp->mark_ready(0);
    ddp->finish();
    if (gradient != std::vector<float>(4, 0.5F)) {
      throw std::runtime_error("a wrong average");
    }
  });
  for (const auto& rank : children.wait(std::chrono::seconds(90))) {
    CHECK_MESSAGE(rank.exited_with(0), rank.output);
  }
}
