// SPDX-License-Identifier: MIT
#include "parts.hpp"
#include "ranks.hpp"

#include <algorithm>
#include <atomic>
#include <memory>
#include <span>

namespace {

using namespace hfcomm;
using namespace multi_rank;

/// Runs `call` at once on all ranks but `late`, which follow when all others have given up. Every rank must get a
/// timeout_error that names exactly the late ranks.
template <class Call>
void expect_timeout(int ranks, const std::vector<int>& late, Call call) {
  std::atomic<int> ready{0};
  std::atomic<int> gave_up{0};
  run_noted(ranks, {}, [&](const process_group& world) {
    // The ranks start together, so that 300 ms are long enough.
    ++ready;
    wait_until([&] { return ready == ranks; });
    const process_group hasty = world.with_timeout(std::chrono::milliseconds(300));
    const bool comes_late = std::find(late.begin(), late.end(), world.rank()) != late.end();
    if (comes_late) {
      wait_until([&] { return gave_up == ranks - static_cast<int>(late.size()); });
    }
    line_note note;
    const auto problem = error_of<timeout_error>([&] { call(comes_late ? world : hasty, note); });
    if (!comes_late) {
      ++gave_up;
    }
    CHECK((problem.missing() == late));
    CHECK(problem.rank() == world.rank());
    CHECK_CONTAINS(problem.what(), note.text());
    CHECK_CONTAINS(problem.what(), "within 300 ms");
    CHECK_CONTAINS(problem.what(), (late.size() == 1 ? "rank " : "ranks ") + std::to_string(late.front()));
    // From now on every operation fails at once with the same error.
    CHECK(world.broken());
    std::string text;
    CHECK((error_of<timeout_error>([] { barrier(); }).missing() == late));
    CHECK((error_of<timeout_error>([&] { broadcast(text); }).missing() == late));
    CHECK((error_of<timeout_error>([&] { (void)world.split(0); }).missing() == late));
    CHECK(error_of<timeout_error>([] { (void)all_gather(1); }).detail() == problem.detail());
  });
}

TEST_CASE("timeout: the missing ranks are named on every rank, and the group is broken") {
  const auto meet = [](const process_group& group, line_note& note) { barrier(note(group)); };
  expect_timeout(2, {0}, meet);
  expect_timeout(2, {1}, meet);
  expect_timeout(3, {0, 2}, meet);
  expect_timeout(4, {3}, meet);
  expect_timeout(8, {1, 2, 5, 6, 7}, meet);
}

TEST_CASE("timeout: every operation has the deadline") {
  const std::vector<int> late{1};
  expect_timeout(3, late, [](const process_group& group, line_note& note) {
    (void)all_gather(std::string(500'000, 'x'), note(group));
  });
  expect_timeout(3, late, [](const process_group& group, line_note& note) {
    std::string text;
    broadcast(text, 2, note(group));
  });
  expect_timeout(3, late, [](const process_group& group, line_note& note) {
    std::vector<float> data(100'000);
    all_reduce(data, reduce_op::sum, note(group));
  });
  expect_timeout(3, late, [](const process_group& group, line_note& note) { (void)note(group).subgroup({0, 1}); });
}

TEST_CASE("timeout: the error tells what the missing ranks called last") {
  std::atomic<bool> gave_up{false};
  run_noted(2, {}, [&](const process_group& world) {
    line_note note;
    barrier(note(world));
    if (world.rank() == 0) {
      const auto problem =
          error_of<timeout_error>([&] { (void)all_gather(1, world.with_timeout(std::chrono::milliseconds(100))); });
      CHECK_CONTAINS(problem.what(), "rank 1 (");
      CHECK_CONTAINS(problem.what(), "last called barrier() at " + note.text());
      gave_up = true;
    } else {
      wait_until([&] { return gave_up.load(); });
    }
  });
}

TEST_CASE("timeout: the error tells that a missing rank has called nothing") {
  std::atomic<bool> gave_up{false};
  run_noted(2, {}, [&](const process_group& world) {
    if (world.rank() == 0) {
      const auto problem =
          error_of<timeout_error>([&] { barrier(world.with_timeout(std::chrono::milliseconds(100))); });
      CHECK_CONTAINS(problem.what(), ") called nothing in this group.");
      CHECK_FALSE(contains(problem.what(), "last called"));
      gave_up = true;
    } else {
      wait_until([&] { return gave_up.load(); });
    }
  });
}

TEST_CASE("timeout: a broken group does not break other groups") {
  std::atomic<bool> gave_up{false};
  run_noted(3, {}, [&](const process_group& world) {
    const auto doomed = world.split(0).with_timeout(std::chrono::milliseconds(100));
    if (world.rank() == 2) {
      wait_until([&] { return gave_up.load(); });
    } else {
      CHECK((error_of<timeout_error>([&] { barrier(doomed); }).missing() == std::vector{2}));
      gave_up = true;
    }
    CHECK((error_of<timeout_error>([&] { barrier(doomed); }).missing() == std::vector{2}));
    check_usable(world);
    check_usable(world.split(0));
  });
}

TEST_CASE("lost rank: one that returns early is named at once and in every later operation") {
  for (const int ranks : rank_counts_from(2)) {
    for (const int gone : {0, ranks - 1}) {
      run_noted(ranks, "gone is " + std::to_string(gone), [&](const process_group& world) {
        barrier();
        if (world.rank() == gone) {
          return;
        }
        const auto start = std::chrono::steady_clock::now();
        std::vector<float> data(100'000);
        const auto problem = error_of<peer_error>([&] { all_reduce(data); });
        CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(20));
        CHECK(problem.peer() == gone);
        CHECK(problem.fatal());
        CHECK_CONTAINS(problem.what(), "rank " + std::to_string(gone) + " (thread of pid ");
        CHECK_CONTAINS(problem.what(), "has left the job");
        CHECK_CONTAINS(problem.what(), "barrier() at failure_test.cpp");
        CHECK(world.broken());
        const auto again = error_of<peer_error>([] { barrier(); });
        CHECK(again.peer() == gone);
        CHECK(again.detail() == problem.detail());
      });
    }
  }
}

TEST_CASE("lost rank: all others quote the exception that ended it, and run_ranks throws it") {
  for (const int ranks : {2, 3, 8}) {
    std::atomic<int> quoted{0};
    const auto rank_main = [&](const process_group& world) {
      if (world.rank() == 1) {
        throw std::domain_error("the disk is full");
      }
      try {
        (void)all_gather(text_of(world.rank(), 1000));
      } catch (const peer_error& problem) {
        quoted += contains(problem.what(), "the disk is full") && problem.peer() == 1 && problem.fatal() ? 1 : 0;
        throw;
      }
    };
    CHECK_THROWS_WITH_AS(run_ranks(ranks, rank_main), "the disk is full", std::domain_error);
    CHECK(quoted == ranks - 1);
  }
}

TEST_CASE("lost rank: ranks that wait in a subgroup learn of it") {
  std::atomic<int> quoted{0};
  const auto rank_main = [&](const process_group& world) {
    const auto half = world.split(world.rank() % 2);
    if (world.rank() == 3) {
      throw std::domain_error("gone");
    }
    if (world.rank() == 1) {
      const auto problem = error_of<peer_error>([&] { barrier(half); });
      quoted += contains(problem.what(), "gone") ? 1 : 0;
      CHECK(problem.peer() == 1);  // of the group
    } else {
      check_usable(half);  // all of its ranks are alive
    }
  };
  CHECK_THROWS_WITH_AS(run_ranks(4, rank_main), "gone", std::domain_error);
  CHECK(quoted == 1);
}

TEST_CASE("run_ranks: when no rank failed by itself, the last error that the others caught is thrown") {
  const auto rank_main = [](const process_group& world) {
    if (world.rank() == 0) {
      barrier();
    }
  };
  CHECK_THROWS_AS(run_ranks(2, rank_main), peer_error);
}

TEST_CASE("serialization: an exception while encoding is an error with its text on every rank") {
  at_every_size([](const process_group& world) {
    for (int odd = 0; odd < world.size(); ++odd) {
      const auto expect = [&](auto call) {
        failing_object mine{.fails_to_save = world.rank() == odd, .text = std::string(100, 'x')};
        line_note note;
        if (world.rank() == odd) {
          CHECK_THROWS_WITH_AS(call(mine, note), "cannot save this", std::domain_error);
        } else {
          const auto problem = error_of<peer_error>([&] { call(mine, note); });
          CHECK(problem.peer() == odd);
          CHECK_FALSE(problem.fatal());
          CHECK_CONTAINS(problem.what(), "cannot save this");
          CHECK_CONTAINS(problem.what(), "failing_object");
          CHECK_CONTAINS(problem.what(), note.text());
        }
        check_usable(world);
      };
      expect([&](failing_object& mine, line_note& note) { (void)all_gather(mine, note(world)); });
      expect([&](failing_object& mine, line_note& note) { (void)gather(mine, 0, note(world)); });
      expect([&](failing_object& mine, line_note& note) { broadcast(mine, odd, note(world)); });
      expect([&](failing_object& mine, line_note& note) {
        (void)all_reduce(mine, [](failing_object a, const failing_object&) { return a; }, note(world));
      });
    }
  });
}

TEST_CASE("serialization: an object that cannot be decoded is an error where it arrives, and the group stays usable") {
  at_every_size([](const process_group& world) {
    for (const std::size_t size : each_of(3, 600'000)) {
      // The root keeps what it has and decodes nothing.
      failing_object value{.fails_to_load = world.rank() == 0, .text = std::string(size, 'a')};
      if (world.rank() == 0) {
        broadcast(value);
      } else {
        const auto problem = error_of<decode_error>([&] { broadcast(value); });
        CHECK_CONTAINS(problem.what(), "the object from rank 0");
        CHECK_CONTAINS(problem.what(), "failure_test.cpp");
      }
      CHECK((value.text == std::string(size, 'a')));
      CHECK(value.fails_to_load == (world.rank() == 0));
      check_usable(world);
      const auto call = [&] { (void)gather(failing_object{.fails_to_load = world.rank() == world.size() - 1}, 0); };
      if (world.rank() == 0) {
        CHECK_CONTAINS(error_of<decode_error>(call).what(), "the object from rank " + std::to_string(world.size() - 1));
      } else {
        call();
      }
      check_usable(world);
    }
  });
}

TEST_CASE("failure: many in a row on changing ranks leave the group usable") {
  at_every_size([](const process_group& world) {
    for (int round = 0; round < 30; ++round) {
      const int odd = round * 3 % world.size();
      std::vector<int> out(as_index(world.size()) + (world.rank() == odd ? 1 : 0));
      const auto call = [&] { all_gather(std::array{round}, out); };
      if (world.rank() == odd) {
        (void)error_of<usage_error>(call);
      } else {
        CHECK(error_of<peer_error>(call).peer() == odd);
      }
      if (round % 3 == 0) {
        check_usable(world);
      }
    }
  });
}

}  // namespace
