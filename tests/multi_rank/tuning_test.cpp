// SPDX-License-Identifier: MIT
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <functional>
#include <numeric>
#include <set>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include <unistd.h>

#include "../single_copies.hpp"
#include "../tree.hpp"
#include "ranks.hpp"

#include <hfcomm/engine/shared_memory/ways.hpp>
#include <hfcomm/group/tuning.hpp>

namespace {

namespace tuning_tests {

using namespace hfcomm;
using namespace multi_rank;
using engines::tuning_mode;
using engines::tuning_table;

/// Lets groups try all ways, whatever that costs, and forgets what is known before and after.
class thorough_tuning {
 public:
  thorough_tuning() { tuning_table::of_process().reset(tuning_mode::thorough); }
  thorough_tuning(const thorough_tuning&) = delete;
  thorough_tuning& operator=(const thorough_tuning&) = delete;
  ~thorough_tuning() { tuning_table::of_process().reset(tuning_mode::brief); }
};

/// Enough calls for each way to be tried, and for the ranks to agree.
constexpr int enough_calls = engines::most_tuning_calls;

/// A value that differs for each rank, call and index, of which sums of 8 are exact.
std::int32_t value(int rank, int call, std::size_t index) {
  return static_cast<std::int32_t>(index % 1000) * 64 + rank * 8 + call % 8;
}

std::vector<std::int32_t> values(int rank, int call, std::size_t count) {
  std::vector<std::int32_t> made(count);
  for (std::size_t index = 0; index < count; ++index) {
    made[index] = value(rank, call, index);
  }
  return made;
}

std::span<const std::int32_t> part_of(std::span<const std::int32_t> whole, int part, int parts) {
  const std::size_t count = whole.size() / as_index(parts);
  return whole.subspan(as_index(part) * count, count);
}

/// The ranks' values and their sums. They repeat after 8 calls, so they are computed once, and not by each rank:
/// without optimisation the tests would compute for most of their time. The values of fewer elements are the first
/// ones.
class known_values {
 public:
  known_values(int ranks, std::size_t most) {
    for (int call = 0; call < 8; ++call) {
      auto& call_sums = sums_.emplace_back(most, 0);
      auto& call_values = values_.emplace_back();
      for (int rank = 0; rank < ranks; ++rank) {
        const auto& made = call_values.emplace_back(values(rank, call, most));
        std::transform(call_sums.begin(), call_sums.end(), made.begin(), call_sums.begin(), std::plus<>());
      }
    }
  }
  [[nodiscard]] std::span<const std::int32_t> of(int rank, int call) const {
    return values_[as_index(call) % 8][as_index(rank)];
  }
  [[nodiscard]] std::span<const std::int32_t> sums(int call) const { return sums_[as_index(call) % 8]; }

 private:
  std::vector<std::vector<std::vector<std::int32_t>>> values_;
  std::vector<std::vector<std::int32_t>> sums_;
};

/// Does each operation once on an equal part of what is known for each rank; returns the names of those with wrong
/// results.
std::string wrong_operations(const process_group& group, int call, const known_values& known) {
  const int ranks = group.size();
  const int me = group.rank();
  const int root = call % ranks;
  const auto whole = known.of(me, call);
  const std::size_t count = whole.size() / as_index(ranks);
  const auto mine = whole.first(count);
  std::string wrong;
  const auto expect = [&](const char* name, std::span<const std::int32_t> got, std::span<const std::int32_t> wanted) {
    wrong += same_bits(got, wanted) ? "" : std::string(name) + " ";
  };
  std::vector<std::int32_t> gathered;
  std::vector<std::int32_t> exchanged;
  for (int rank = 0; rank < ranks; ++rank) {
    const auto theirs = known.of(rank, call);
    gathered.insert(gathered.end(), theirs.begin(), theirs.begin() + static_cast<std::ptrdiff_t>(count));
    const auto to_me = part_of(theirs, me, ranks);
    exchanged.insert(exchanged.end(), to_me.begin(), to_me.end());
  }
  const std::vector<std::int32_t> untouched(whole.size(), -1);
  const auto sums = known.sums(call);

  std::vector<std::int32_t> data(mine.begin(), mine.end());
  broadcast(std::span(data), root, group);
  expect("broadcast", data, known.of(root, call).first(count));
  std::vector<std::int32_t> all = untouched;
  all_gather(mine, all, group);
  expect("all_gather", all, gathered);
  all = untouched;
  gather(mine, all, root, group);
  expect("gather", all, me == root ? gathered : untouched);
  std::vector<std::int32_t> part(count, -1);
  scatter(whole, part, root, group);
  expect("scatter", part, part_of(known.of(root, call), me, ranks));
  all_to_all(whole, all, group);
  expect("all_to_all", all, exchanged);
  data.assign(mine.begin(), mine.end());
  all_reduce(data, reduce_op::sum, group);
  expect("all_reduce", data, sums.first(count));
  data.assign(count, -1);
  reduce(mine, data, root, reduce_op::sum, group);
  expect("reduce", data, me == root ? sums.first(count) : std::span(untouched).first(count));
  reduce_scatter(whole, part, reduce_op::sum, group);
  expect("reduce_scatter", part, part_of(sums, me, ranks));
  return wrong;
}

/// A file that is removed with this object.
class temporary_file {
 public:
  explicit temporary_file(const std::string& text)
      : path_("tuning-test-" + std::to_string(::getpid()) + "-" +
              std::to_string(reinterpret_cast<std::uintptr_t>(this))) {
    std::ofstream(path_) << text;
  }
  temporary_file(const temporary_file&) = delete;
  temporary_file& operator=(const temporary_file&) = delete;
  ~temporary_file() { std::remove(path_.c_str()); }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

/// Returns the number of operations for which groups of so many ranks have found ways.
std::size_t tuned_operations(int ranks) {
  std::istringstream lines(tuning_text());
  std::set<std::string> found;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string operation;
    std::string bytes;
    int group = 0;
    if (words >> operation >> bytes >> group && group == ranks) {
      found.insert(operation);
    }
  }
  return found.size();
}

TEST_CASE("tuning: every way that is tried gives the right results") {
  for (const int size : rank_counts) {
    const thorough_tuning mode;
    std::vector<known_values> known;
    for (const std::size_t count : each_of(50, 1'001, 9'000, 20'003)) {
      if (size <= 4 || count <= 9'000) {  // unoptimised, all of them take their time
        known.emplace_back(size, count * as_index(size));
      }
    }
    run_ranks(size, [&](const process_group& world) {
      barrier();
      const std::uint64_t before = single_copies(world);
      for (const known_values& of_count : known) {
        for (int call = 0; call < enough_calls; ++call) {
          CHECK(wrong_operations(world, call, of_count) == "");
        }
      }
      CHECK((single_copies(world) > before || world.size() == 1 || !can_read_memory()));
    });
    constexpr std::size_t narrow = 3;  // below
    CHECK((size == 1 || tuned_operations(size) == engines::tuned_operation_names.size() - narrow));
  }
}

TEST_CASE("tuning: reductions of narrow floats are tuned by themselves") {
  const thorough_tuning mode;
  run_ranks(2, [](const process_group& world) {
    const auto root = [](int call) { return call % 2; };
    // All ways are tried anew where other things hold the leading one up.
    for (int call = 0; call < 3 * enough_calls; ++call) {
      const std::vector<bfloat16> in(4'000, bfloat16(static_cast<float>(call % 8 + world.rank())));
      const bfloat16 sum(static_cast<float>(2 * (call % 8) + 1));
      std::vector<bfloat16> data = in;
      all_reduce(data, reduce_op::sum, world);
      CHECK(std::count(data.begin(), data.end(), sum) == 4'000);
      reduce(in, data, root(call), reduce_op::sum, world);
      CHECK(std::count(data.begin(), data.end(), sum) == 4'000);
      std::vector<bfloat16> part(2'000);
      reduce_scatter(in, part, reduce_op::sum, world);
      CHECK(std::count(part.begin(), part.end(), sum) == 2'000);
    }
  });
  const std::string text = tuning_text();
  for (const char* name : {"all_reduce", "reduce", "reduce_scatter"}) {
    CHECK(text.find(std::string("\nnarrow_") + name + " 4096 2 ") != std::string::npos);
    CHECK(text.find(std::string("\n") + name + " ") == std::string::npos);
  }
}

TEST_CASE("tuning: floats are reduced in the order of the tree, whatever the way") {
  const thorough_tuning mode;
  at_every_size([](const process_group& world) {
    constexpr std::size_t count = 70'001;
    const auto number = [](int rank, std::size_t index) {
      return 1.0F / static_cast<float>(index % 97 + as_index(rank) * 3 + 1);
    };
    std::vector<float> mine(count);
    std::vector<float> expected(count);
    for (std::size_t index = 0; index < count; ++index) {
      mine[index] = number(world.rank(), index);
      std::vector<float> column;
      for (int rank = 0; rank < world.size(); ++rank) {
        column.push_back(number(rank, index));
      }
      expected[index] = combine_in_tree(std::span<const float>(column), std::plus<>());
    }
    for (int call = 0; call < enough_calls; ++call) {
      std::vector<float> data = mine;
      all_reduce(data, reduce_op::sum, world);
      CHECK(same_bits(data, expected));
    }
  });
}

/// Calls all_reduce on so many elements or, every third time, on `longer` ones; each 23rd call does not fit.
void mix_in_calls_that_do_not_fit(int calls, std::size_t count, std::size_t longer) {
  for (const int size : rank_counts_from(2)) {
    const known_values known(size, longer);
    run_noted(size, {}, [&](const process_group& world) {
      for (int call = 0; call < calls; ++call) {
        const auto mine = known.of(world.rank(), call).first(call % 3 == 0 ? longer : count);
        std::vector<std::int32_t> data(mine.begin(), mine.end());
        if (call % 23 == 7) {
          CHECK_THROWS_AS(
              world.rank() == 0 ? all_reduce(data, reduce_op::sum, world) : broadcast(std::span(data), 0, world),
              mismatch_error);
        } else {
          all_reduce(data, reduce_op::sum, world);
          CHECK(same_bits(data, known.sums(call).first(data.size())));
        }
      }
    });
  }
}

TEST_CASE("tuning: a call that does not fit in the middle of it leaves the ranks agreed") {
  const thorough_tuning mode;
  mix_in_calls_that_do_not_fit(3 * enough_calls, 20'000, 20'000);
  CHECK(tuning_text().find("all_reduce") != std::string::npos);
}

TEST_CASE("tuning: what a group has found is in the table, and later groups take it") {
  if (!can_read_memory()) {
    std::puts("[hfcomm] skipped: tuning: later groups take it: no process may read another one's memory here");
    return;
  }
  const thorough_tuning mode;
  const temporary_file file(
      "# a comment\n"
      "all_to_all 65536 3 own kernel 32768 1.5\n"
      "all_to_all 65536 3 shared kernel 32768 1.5\n");
  load_tuning(file.path());
  run_ranks(3, [](const process_group& world) {
    const process_group later = world.split(0);
    barrier(later);
    for (int call = 0; call < 4; ++call) {
      const auto in = values(world.rank(), call, 3 * 16'384);
      std::vector<std::int32_t> out(in.size(), -1);
      all_to_all(in, out, later);
      CHECK(out.back() == part_of(values(2, call, in.size()), world.rank(), 3).back());
    }
    CHECK(single_copies(later) == 3);  // the first call proposes what the table has, the others do it
    for (int call = 0; call < 2 * enough_calls; ++call) {
      std::vector<std::int32_t> data = values(world.rank(), call, 512);
      all_reduce(data, reduce_op::sum, later);
    }
  });
  const std::string text = tuning_text();
  CHECK(text.find("all_to_all 65536 3 own kernel 32768 1.50\n") != std::string::npos);
  CHECK(text.find("all_reduce 2048 3 ") != std::string::npos);
  // A table that was saved can be loaded.
  const temporary_file saved("");
  save_tuning(saved.path());
  load_tuning(saved.path());
  CHECK(tuning_text() == text);
}

/// Does an all_reduce again and again, until the process's table has a choice for it; for 40 s at most. Returns whether
/// it has.
bool finds_choice(const process_group& world) {
  std::vector<std::int32_t> data(20'000, 0);
  const auto begin = std::chrono::steady_clock::now();
  bool found = false;
  for (bool goes_on = true; goes_on;) {
    for (int call = 0; call < 64; ++call) {
      all_reduce(data, reduce_op::sum, world);
    }
    found = tuning_text().find("all_reduce") != std::string::npos;
    goes_on = !found && std::chrono::steady_clock::now() - begin < std::chrono::seconds(40);
    broadcast(goes_on, 0, world);
  }
  return found;
}

TEST_CASE("tuning: a group goes on looking after it has found a way") {
  tuning_table::of_process().reset(tuning_mode::brief);
  run_ranks(2, [&](const process_group& world) {
    barrier();
    const bool found = finds_choice(world);
    barrier(world);
    if (world.rank() == 0) {
      CHECK(found);
      tuning_table::of_process().reset(tuning_mode::brief);  // the group keeps its choice
    }
    barrier(world);
    const bool found_again = finds_choice(world);
    CHECK((world.rank() != 0 || found_again));
  });
  tuning_table::of_process().reset(tuning_mode::brief);
}

TEST_CASE("tuning: the choices of a file stay") {
  tuning_table::of_process().reset(tuning_mode::brief);
  const temporary_file file(
      "all_reduce 65536 2 own slots 32768 0.01\n"
      "all_reduce 65536 2 shared slots 32768 0.01\n");
  load_tuning(file.path());
  CHECK(tuning_table::of_process().mode() == tuning_mode::pinned);
  const std::string text = tuning_text();
  run_ranks(2, [&](const process_group& world) {
    barrier();
    const auto begin = std::chrono::steady_clock::now();
    for (bool goes_on = true; goes_on;) {
      finds_choice(world);  // 64 operations
      goes_on = std::chrono::steady_clock::now() - begin < std::chrono::seconds(3);
      broadcast(goes_on, 0, world);
    }
  });
  CHECK(tuning_text() == text);
  tuning_table::of_process().reset(tuning_mode::brief);
}

TEST_CASE("tuning: a piece that is longer than what there is counts as the shortest such one") {
  constexpr int longest = 5;
  REQUIRE(engines::transfer_ways[longest] == engines::transfer_way{.piece = 131'072});
  tuning_table& table = tuning_table::of_process();
  table.reset(tuning_mode::brief);
  for (const bool shares_cores : {false, true}) {
    table.set({4, shares_cores, engines::tuned_operation::all_reduce, 17}, {longest, 1.0});
  }
  run_ranks(4, [&](const process_group& world) {
    barrier();
    for (int call = 0; call < 4 * enough_calls; ++call) {
      std::vector<std::int32_t> data = values(world.rank(), call, 20'000);
      all_reduce(data, reduce_op::sum, world);
    }
  });
  const auto text = tuning_text();
  const auto choice = text.find("all_reduce 65536 4 ");
  REQUIRE(choice != std::string::npos);
  int found = 0;
  for (const bool shares_cores : {false, true}) {
    const int way = table.find({4, shares_cores, engines::tuned_operation::all_reduce, 17});
    found += way != longest ? 1 : 0;
    CHECK((way == longest || engines::transfer_ways[as_index(way)].piece == 32'768));
  }
  CHECK(found == 1);  // the other one is for ranks with cores of their own, or without
  table.reset(tuning_mode::brief);
}

TEST_CASE("tuning: a call that does not fit leaves ranks agreed that limit what tries lose") {
  tuning_table::of_process().reset(tuning_mode::brief);
  mix_in_calls_that_do_not_fit(250, 20'000, 30'000);
  tuning_table::of_process().reset(tuning_mode::brief);
}

TEST_CASE("tuning: a file that is no table is a usage_error that names the line") {
  const auto message_of = [](const std::string& text) {
    const temporary_file file(text);
    try {
      load_tuning(file.path());
    } catch (const usage_error& problem) {
      return problem.detail();
    }
    return std::string("no error");
  };
  CHECK(message_of("all_reduce 1024 2 own slots 32768 1.0\nrubbish\n").find(":2: \"rubbish\"") != std::string::npos);
  CHECK(message_of("all_redcue 1024 2 own slots 32768 1.0\n").find("\"all_redcue\" is not known") != std::string::npos);
  CHECK(message_of("all_reduce 1024 2 own slots 12345 1.0\n").find("no such way: slots") != std::string::npos);
  CHECK(message_of("all_reduce 1024 2 mine slots 32768 1.0\n").find("\"mine\" is not known") != std::string::npos);
  CHECK(message_of("all_reduce 1024 2 own slots 32768 1.0 more\n").find("it is not: operation") != std::string::npos);
  CHECK(message_of("all_reduce 0 2 own slots 32768 1.0\n").find("no such size") != std::string::npos);
  CHECK(message_of("all_reduce -5 2 own slots 32768 1.0\n").find("no such size") != std::string::npos);
  CHECK(message_of("all_reduce 1024 -2 own slots 32768 1.0\n").find("1 to 1024 ranks") != std::string::npos);
  CHECK(message_of("  # a comment\n\nall_reduce 1024 2 own slots 32768 1.0\r\n") == "no error");
  CHECK_THROWS_AS(load_tuning("/nonexistent/table"), usage_error);
  CHECK_THROWS_AS(load_tuning("/"), usage_error);
  CHECK_THROWS_AS(save_tuning("/nonexistent/table"), engine_error);
  tuning_table::of_process().reset(tuning_mode::brief);
}

}  // namespace tuning_tests

}  // namespace
