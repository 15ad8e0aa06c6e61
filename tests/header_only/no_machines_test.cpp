// SPDX-License-Identifier: MIT
#include "../multi_rank/ranks.hpp"

#include <chrono>
#include <cstdlib>
#include <string>

namespace {

using namespace hfcomm;
using namespace multi_rank;

/// Variables of a launcher, while this lives.
class set_variables {
 public:
  explicit set_variables(std::vector<std::pair<const char*, const char*>> all) : all_(std::move(all)) {
    for (const auto& [name, value] : all_) {
      ::setenv(name, value, 1);
    }
  }
  set_variables(const set_variables&) = delete;
  set_variables& operator=(const set_variables&) = delete;
  ~set_variables() {
    for (const auto& [name, value] : all_) {
      ::unsetenv(name);
    }
  }

 private:
  std::vector<std::pair<const char*, const char*>> all_;
};

TEST_CASE("run_ranks: several machines without <hfcomm/machines.hpp> are a usage_error") {
  const auto problem =
      error_of<usage_error>([] { testing::run_ranks(2, [](const process_group&) {}, {.machines = {1, 1}}); });
  CHECK_CONTAINS(problem.what(), "include <hfcomm/machines.hpp>");
}

TEST_CASE("init: a job of several machines without <hfcomm/machines.hpp> is a usage_error") {
  const set_variables job({{"HFCOMM_RANK", "0"},
                           {"HFCOMM_WORLD_SIZE", "4"},
                           {"HFCOMM_LOCAL_RANK", "0"},
                           {"HFCOMM_LOCAL_SIZE", "2"},
                           {"HFCOMM_JOB", "job of several machines"},
                           {"HFCOMM_ADDRESS", "node7"}});
  const auto problem = error_of<usage_error>([] { const auto session = init(); });
  CHECK_CONTAINS(problem.what(), "several machines");
  CHECK_CONTAINS(problem.what(), "include <hfcomm/machines.hpp>");
  CHECK_FALSE(is_initialized());
  const auto of_connect = error_of<usage_error>([] { static_cast<void>(connect()); });
  CHECK_CONTAINS(of_connect.what(), "include <hfcomm/machines.hpp>");
}

TEST_CASE("init: the error about ranks that do not come says what ranks on other machines need") {
  for (const int rank : {0, 1}) {
    const auto problem = error_of<timeout_error>([&] {
      const auto session = init({.init_method = "tcp://node7:29500",
                                 .rank = rank,
                                 .world_size = 2,
                                 .start_timeout = std::chrono::milliseconds(200)});
    });
    CHECK_CONTAINS(problem.what(), "include <hfcomm/machines.hpp>");
    CHECK(problem.missing() == std::vector{1 - rank});
  }
}

}  // namespace
