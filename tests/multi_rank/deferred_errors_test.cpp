// SPDX-License-Identifier: MIT
// Errors of works that nobody waited for, and exceptions that drop works in flight: no error is lost, no rank hangs.
#include "ranks.hpp"

#include <span>

namespace {

using namespace hfcomm;
using namespace multi_rank;

work<int> sum_later(const process_group& group) { co_return co_await all_reduce_async(1, reduce_op::sum, group); }
work<int> sum_much_later(const process_group& group) { co_return co_await sum_later(group); }

}  // namespace

TEST_CASE("deferred errors: a dropped work's error fails the rank when no later operation throws it") {
  for (const int ranks : rank_counts) {
    CHECK_THROWS_AS(run_ranks(ranks,
                              [](const process_group& world) {
                                const auto dropped = all_gather_async(failing_object{.fails_to_save = true}, world);
                              }),
                    std::domain_error);
    // Also if the group no longer exists by then.
    CHECK_THROWS_AS(run_ranks(ranks,
                              [](const process_group& world) {
                                const auto dropped =
                                    all_gather_async(failing_object{.fails_to_save = true}, world.split(0));
                              }),
                    std::domain_error);
  }
}

TEST_CASE("deferred errors: an error of a scope's closing barrier fails the rank when no later operation throws it") {
  CHECK_THROWS_AS(run_ranks(2,
                            [](const process_group& world) {
                              const auto hasty = world.with_timeout(std::chrono::milliseconds(100));
                              const barrier_scope guard(hasty);
                              if (world.rank() == 1) {
                                throw std::runtime_error("never comes to the end");
                              }
                            }),
                  std::runtime_error);
  CHECK_THROWS_AS(run_ranks(2,
                            [](const process_group& world) {
                              if (world.rank() == 1) {
                                barrier(world);
                                (void)all_reduce(1, reduce_op::sum, world);
                              } else {
                                const barrier_scope guard(world);
                              }
                            }),
                  mismatch_error);
}

TEST_CASE("deferred errors: an error that an operation has thrown is not thrown again at the end") {
  at_every_size([](const process_group& world) {
    {
      const auto dropped = all_gather_async(failing_object{.fails_to_save = true}, world);
    }
    CHECK_THROWS_AS(barrier(world), std::domain_error);
    check_usable(world);
  });
}

TEST_CASE("deferred errors: an exception that drops a collective in flight continues, and the others get an error") {
  for (const int ranks : rank_counts_from(2)) {
    std::string text;
    try {
      run_ranks(ranks, [&](const process_group& world) {
        const auto group = world.split(0);
        if (world.rank() == 0) {
          const auto started = all_reduce_async(1, reduce_op::sum, group);
          throw std::runtime_error("boom");
        }
        const auto problem = error_of<peer_error>([&] { (void)recv<int>(0, group); });
        CHECK(problem.peer() == 0);
        CHECK(problem.fatal());
        CHECK_CONTAINS(problem.what(), "left all_reduce (deferred_errors_test.cpp");
        CHECK_CONTAINS(problem.what(), "under way because of an exception: boom");
        CHECK(group.broken());
      });
    } catch (const std::runtime_error& problem) {
      text = problem.what();
    }
    CHECK(text == "boom");
  }
}

TEST_CASE("deferred errors: an exception that drops a message in flight reaches the others") {
  for (const int ranks : {2, 4}) {
    CHECK_THROWS_WITH(run_ranks(ranks,
                                [](const process_group& world) {
                                  if (world.rank() == 0) {
                                    const auto coming = irecv<int>(1, world);
                                    throw std::runtime_error("boom");
                                  }
                                  CHECK_CONTAINS(error_of<peer_error>([&] { barrier(world); }).what(), "boom");
                                }),
                      "boom");
  }
}

TEST_CASE("deferred errors: an exception that drops a message leaves a group of one usable") {
  const process_group alone;
  for (int round = 0; round < 3; ++round) {
    const auto fail = [&] {
      const auto never = irecv<int>(0, alone);
      throw std::runtime_error("boom");
    };
    CHECK_THROWS_AS(fail(), std::runtime_error);
    // A group of one stays usable: there is no other rank.
    auto sent = isend(round, 0, alone);
    CHECK(irecv<int>(0, alone).wait() == round);
    sent.wait();
  }
}

TEST_CASE("deferred errors: an exception that drops a coroutine breaks the group it waits in") {
  for (const bool nested : {false, true}) {
    for (const int ranks : {2, 3, 8}) {
      const auto rank_main = [&](const process_group& world) {
        const auto group = world.split(0);
        if (world.rank() == 0) {
          const auto started = nested ? sum_much_later(group) : sum_later(group);
          throw std::runtime_error("boom");
        }
        const auto problem = error_of<peer_error>([&] { (void)recv<int>(0, group); });
        CHECK(problem.peer() == 0);
        CHECK_CONTAINS(problem.what(), "boom");
      };
      CHECK_THROWS_WITH_AS(run_ranks(ranks, rank_main), "boom", std::runtime_error);
    }
  }
}

TEST_CASE("deferred errors: an exception that drops a work which can still complete breaks nothing") {
  at_every_size([](const process_group& world) {
    try {
      const auto started = all_reduce_async(1, reduce_op::sum, world);
      throw std::runtime_error("boom");
    } catch (const std::runtime_error&) {
    }
    check_usable(world);
  });
}
