// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <string>
#include <utility>

#include <unistd.h>

#include <hfcomm/comm.hpp>

#include "../process/processes.hpp"

namespace {

using processes::count_of;
using processes::report;

/// The variables of rank and size of every launcher.
constexpr std::pair<const char*, const char*> launchers[] = {{"HFCOMM_RANK", "HFCOMM_WORLD_SIZE"},
                                                             {"RANK", "WORLD_SIZE"},
                                                             {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                                                             {"FLUX_TASK_RANK", "FLUX_JOB_SIZE"},
                                                             {"PALS_RANKID", "PMI_SIZE"},
                                                             {"JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE"},
                                                             {"PMI_RANK", "PMI_SIZE"},
                                                             {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS"}};

/// Runs `body` in a process that a launcher seems to have started, with `rank` and `size` as the names of its
/// variables. Its output has what it writes to stderr.
processes::outcome run_launched(const char* rank, const char* size, const std::function<void()>& body) {
  processes::child_processes child(1, [&](int) {
    ::dup2(processes::report_pipe(), STDERR_FILENO);
    for (const auto& names : launchers) {  // the test itself may run under one
      ::unsetenv(names.first);
      ::unsetenv(names.second);
    }
    ::setenv(rank, "1", 1);
    ::setenv(size, "2", 1);
    body();
  });
  return child.wait(std::chrono::seconds(60)).front();
}

const std::string remedy = "auto session = hfcomm::init();";

TEST_CASE("a forgotten init: the first call says once what is missing") {
  const std::function<void()> calls[] = {
      [] { report(std::to_string(hfcomm::all_gather(1).size())); },
      [] { report(std::to_string(hfcomm::world_size())); },
      [] { report(std::to_string(hfcomm::local_group().size())); },
  };
  for (const auto& call : calls) {
    const auto done = run_launched("HFCOMM_RANK", "HFCOMM_WORLD_SIZE", [&] {
      call();
      call();
    });
    CHECK(done.exited_with(0));
    CHECK(count_of(done.output, "HFCOMM_WORLD_SIZE=2, but this process has no session") == 1);
    CHECK(count_of(done.output, remedy) == 1);
    CHECK(count_of(done.output, "1\n") == 2);
  }
}

TEST_CASE("a forgotten init: every launcher is known") {
  for (const auto& [rank, size] : launchers) {
    const auto done = run_launched(rank, size, [] { (void)hfcomm::all_reduce(1.0); });
    CHECK(count_of(done.output, std::string(size) + "=2, but this process has no session") == 1);
  }
}

TEST_CASE("a forgotten init: with HFCOMM_REQUIRE_INIT a call is a usage_error") {
  const auto done = run_launched("HFCOMM_RANK", "HFCOMM_WORLD_SIZE", [] {
    ::setenv("HFCOMM_REQUIRE_INIT", "1", 1);
    for (int call = 0; call < 2; ++call) {
      try {
        (void)hfcomm::all_gather(1);
      } catch (const hfcomm::usage_error& problem) {
        report(problem.what());
      }
    }
  });
  CHECK(done.exited_with(0));
  CHECK(count_of(done.output, remedy) == 2);
}

TEST_CASE("a forgotten init: a session that was dropped is none") {
  const auto done = run_launched("HFCOMM_JOB", "HFCOMM_WORLD_SIZE", [] {
    ::setenv("HFCOMM_WORLD_SIZE", "1", 1);
    ::setenv("HFCOMM_RANK", "0", 1);
    (void)hfcomm::init();
    ::setenv("HFCOMM_WORLD_SIZE", "2", 1);
    (void)hfcomm::rank();
  });
  CHECK(done.exited_with(0));
  CHECK(count_of(done.output, remedy) == 1);
}

TEST_CASE("a forgotten init: nothing is said of one process, nor within a session, nor of explicit groups") {
  const auto alone = run_launched("HFCOMM_RANK", "HFCOMM_JOB", [] { (void)hfcomm::all_gather(1); });
  CHECK(alone.output.empty());
  const auto in_session = run_launched("HFCOMM_RANK", "HFCOMM_JOB", [] {
    ::setenv("HFCOMM_RANK", "0", 1);
    ::setenv("HFCOMM_WORLD_SIZE", "1", 1);
    const auto session = hfcomm::init();
    ::setenv("HFCOMM_WORLD_SIZE", "2", 1);
    (void)hfcomm::all_gather(hfcomm::rank());
  });
  CHECK(in_session.output.empty());
  const auto own_group = run_launched("HFCOMM_RANK", "HFCOMM_WORLD_SIZE", [] {
    const hfcomm::process_group one;
    (void)hfcomm::all_gather(1, one);
    (void)hfcomm::all_reduce(1, one);
    (void)hfcomm::gather(1, one);
    (void)hfcomm::send_receive(1, 0, 0, one);
    (void)hfcomm::is_initialized();
  });
  CHECK(own_group.output.empty());
}

}  // namespace
