// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <filesystem>
#include <random>

#include "processes.hpp"

#include <hfcomm/collectives/collect_results_in_files.hpp>

namespace {

using namespace hfcomm;
using namespace std::chrono_literals;

/// Kills its process when it is saved (1) or loaded (2).
struct killing_result {
  int kill_when = 0;
  template <class Archive>
  void save(Archive& archive) const {
    if (kill_when == 1) {
      ::raise(SIGKILL);
    }
    archive(kill_when);
  }
  template <class Archive>
  void load(Archive& archive) {
    archive(kill_when);
    if (kill_when == 2) {
      ::raise(SIGKILL);
    }
  }
};

}  // namespace

TEST_CASE("collect_results_in_files: when a rank is killed at any point, the others remove all files") {
  const auto directory = std::filesystem::temp_directory_path() / processes::unique_name("hfcomm-collect-killed");
  std::filesystem::create_directory(directory);
  struct scenario {
    const char* name;
    int victim;
    int root;
    int kill_when;
    int holder;  // of the killing_result result
  };
  for (const scenario& one :
       {scenario{"a rank that writes", 1, 0, 1, 1}, scenario{"the root that writes", 0, 0, 1, 0},
        scenario{"the last rank as the root that writes", 2, 2, 1, 2}, scenario{"the root that reads", 0, 0, 2, 2},
        scenario{"the last rank as the root that reads", 2, 2, 2, 0}}) {
    const std::string job = processes::unique_name(std::string("collect-") + std::to_string(one.root) +
                                                   std::to_string(one.kill_when) + std::to_string(one.victim));
    processes::child_processes children(3, [&](int rank) {
      session own = init(processes::job_options(job, rank, 3));
      try {
        (void)collect_results_in_files(std::vector<killing_result>{{rank == one.holder ? one.kill_when : 0}}, 3,
                                       directory, one.root);
      } catch (const peer_error& problem) {
        processes::report("culprit " + std::to_string(problem.fatal() ? problem.peer() : -1));
      }
    });
    const auto outcomes = children.wait(20s);
    for (int rank = 0; rank < 3; ++rank) {
      const auto& outcome = outcomes[static_cast<std::size_t>(rank)];
      INFO(one.name, ", rank ", rank, " said: ", outcome.output);
      if (rank == one.victim) {
        CHECK(outcome.killed_by(SIGKILL));
      } else {
        CHECK(outcome.exited_with(0));
        CHECK(outcome.output == "culprit " + std::to_string(one.victim) + '\n');
      }
    }
    INFO(one.name);
    CHECK(std::filesystem::is_empty(directory));
  }
  std::error_code ignored;
  std::filesystem::remove_all(directory, ignored);
}
