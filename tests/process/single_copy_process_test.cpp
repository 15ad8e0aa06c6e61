// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdlib>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "processes.hpp"

using namespace hfcomm;

namespace {

/// Long parts, equal ones, uneven ones and objects, each of them twice.
void exchange_long_parts() {
  const auto ranks = static_cast<std::size_t>(world_size());
  const auto me = static_cast<std::size_t>(rank());
  const auto require = [](bool right, const char* what) {
    if (!right) {
      throw std::runtime_error(std::string("wrong: ") + what);
    }
  };
  const std::size_t count = 70'001;  // as long as is read in place on any machine
  for (int round = 0; round < 2; ++round) {
    const auto value = [&](std::size_t from, std::size_t to) { return static_cast<int>(from * 10 + to) + 100 * round; };
    std::vector<int> in;
    std::vector<int> expected;
    std::vector<std::size_t> in_counts;
    std::vector<std::size_t> out_counts;
    std::vector<std::vector<int>> lists;
    for (std::size_t other = 0; other < ranks; ++other) {
      in.resize(in.size() + count, value(me, other));
      expected.resize(expected.size() + count, value(other, me));
      lists.emplace_back(other == 0 ? 3 : count, value(me, other));
    }
    std::vector<int> out(in.size());
    all_to_all(in, out);
    require(out == expected, "equal parts");

    in.clear();
    expected.clear();
    for (std::size_t other = 0; other < ranks; ++other) {
      in_counts.push_back(me == 0 ? count : other);
      out_counts.push_back(other == 0 ? count : me);
      in.resize(in.size() + in_counts.back(), value(me, other));
      expected.resize(expected.size() + out_counts.back(), value(other, me));
    }
    out.assign(expected.size(), -1);
    all_to_all(in, in_counts, out, out_counts);
    require(out == expected, "uneven parts");

    const auto got = all_to_all(lists);
    for (std::size_t from = 0; from < ranks; ++from) {
      require(got[from] == std::vector<int>(me == 0 ? 3 : count, value(from, me)), "objects");
    }
  }
}

/// `forbids(rank)`: whether the rank does without single copies.
void run(const std::string& name, bool (*forbids)(int)) {
  constexpr int ranks = 3;
  const std::string job = processes::unique(name);
  processes::family family(ranks, [&](int rank) {
    if (forbids(rank)) {
      ::setenv("HFCOMM_SINGLE_COPY", "0", 1);
    }
    session own = init(processes::job(job, rank, ranks));
    exchange_long_parts();
    barrier();
  });
  for (const auto& outcome : family.wait(std::chrono::seconds(60))) {
    CHECK_MESSAGE(outcome.exited_with(0), outcome.said);
  }
}

}  // namespace

TEST_CASE("single copy between processes: the same wherever it is allowed") {
  run("single-copy", [](int) { return false; });
  run("single-copy-not-rank-1", [](int rank) { return rank == 1; });
  run("no-single-copy", [](int) { return true; });
}
