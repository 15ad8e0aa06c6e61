// SPDX-License-Identifier: MIT
#include "ranks.hpp"

#include <chrono>
#include <list>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <hfcomm/collectives/recv.hpp>
#include <hfcomm/collectives/send.hpp>
#include <hfcomm/group/wait.hpp>

namespace {

using namespace hfcomm;
using namespace multi_rank;
using namespace std::chrono_literals;

TEST_CASE("wait_any: it returns the message that has come, in whatever order they come") {
  at_every_size(
      [](const process_group& world) {
        if (world.rank() != 0) {
          // The last rank sends first; each waits for the rank behind it.
          if (world.rank() + 1 < world.size()) {
            (void)recv<int>(world.rank() + 1, world, 1);
          }
          send(world.rank(), 0, world);
          if (world.rank() > 1) {
            (void)recv<int>(0, world, 2);
            send(0, world.rank() - 1, world, 1);
          }
        } else {
          std::vector<work<int>> coming;
          for (int source = 1; source < world.size(); ++source) {
            coming.push_back(irecv<int>(source, world));
          }
          for (int expected = world.size() - 1; expected > 0; --expected) {
            const std::size_t index = wait_any(coming);
            CHECK(index == as_index(expected - 1));
            CHECK(coming[index].wait() == expected);
            coming.erase(coming.begin() + static_cast<std::ptrdiff_t>(index));
            if (expected > 1) {
              CHECK_FALSE(wait_any(coming, 1ms));
              send(0, expected, world, 2);
            }
          }
          CHECK_CONTAINS(error_of<usage_error>([&] { (void)wait_any(coming); }).what(), "no works");
        }
        check_usable(world);
      },
      2);
}

TEST_CASE("wait_any: works of several groups, collectives and coroutines are told apart") {
  at_every_size(
      [](const process_group& world) {
        const auto other = world.split(0);
        const auto third = world.split(0);
        const auto through_coroutine = [](const process_group& group) -> work<int> {
          co_return co_await all_reduce_async(1, reduce_op::sum, group);
        };
        // Rank 0 starts each only when the others have seen the one before.
        std::vector<work<int>> works;
        if (world.rank() == 0) {
          works.push_back(through_coroutine(third));
          CHECK(wait_any(works) == 0);
          barrier(world);
          works.push_back(all_reduce_async(2, reduce_op::sum, other));
          CHECK(works.back().wait() == 2 * world.size());
          CHECK(works.front().wait() == world.size());
        } else {
          works.push_back(all_reduce_async(2, reduce_op::sum, other));
          works.push_back(through_coroutine(third));
          CHECK(wait_any(works) == 1);
          CHECK(works[1].wait() == world.size());
          CHECK_FALSE(works[0].done());
          barrier(world);
          works.pop_back();
          CHECK(wait_any(works, 1min) == 0U);
          CHECK(works[0].wait() == 2 * world.size());
        }
        check_usable(world);
      },
      2);
}

TEST_CASE("wait_any: a work that has failed is done, and wait throws its error") {
  run_noted(2, {}, [](const process_group& world) {
    if (world.rank() == 0) {
      CHECK_THROWS_AS(send(std::string("text"), 1, world, 1), mismatch_error);
      (void)recv<int>(1, world, 2);  // only the failed one is done until then
      send(5, 1, world);
    } else {
      std::vector<work<int>> coming;
      coming.push_back(irecv<int>(0, world));
      coming.push_back(irecv<int>(0, world, 1));
      CHECK(wait_any(coming) == 1);
      CHECK_THROWS_AS((void)coming[1].wait(), mismatch_error);
      send(0, 0, world, 2);
      CHECK(wait_any(std::span(coming).first(1)) == 0);
      CHECK(coming[0].wait() == 5);
    }
    check_usable(world);
  });
}

TEST_CASE("wait_all: it returns the values in their order") {
  at_every_size([](const process_group& world) {
    std::vector<work<int>> numbers;
    std::list<work<void>> sent;
    for (int other = 0; other < world.size(); ++other) {
      numbers.push_back(irecv<int>(other, world));
      sent.push_back(isend(world.rank() * 10 + other, other, world));
    }
    const std::vector<int> values = wait_all(numbers);
    wait_all(sent);
    REQUIRE(values.size() == as_index(world.size()));
    for (int other = 0; other < world.size(); ++other) {
      CHECK(values[as_index(other)] == other * 10 + world.rank());
    }
    CHECK(wait_all(sent, 0s));
    sent.clear();
    wait_all(sent);  // there are none
    std::vector<work<std::unique_ptr<int>>> movable;
    movable.push_back([]() -> work<std::unique_ptr<int>> { co_return std::make_unique<int>(3); }());
    CHECK(*wait_all(movable).front() == 3);
    check_usable(world);
  });
}

TEST_CASE("wait_all: it throws the first error after all are done, and the others keep their values") {
  run_noted(2, {}, [](const process_group& world) {
    if (world.rank() == 0) {
      CHECK_THROWS_AS(send(1, 1, world, 2), mismatch_error);
      CHECK_THROWS_AS(send(1, 1, world, 1), mismatch_error);
      barrier(world);
      std::this_thread::sleep_for(20ms);
      send(std::string("last"), 1, world, 3);
    } else {
      std::vector<work<std::string>> coming;
      for (int tag = 1; tag < 4; ++tag) {
        coming.push_back(irecv<std::string>(0, world, tag));
      }
      barrier(world);
      CHECK_FALSE(wait_all(coming, 1ms));
      const auto problem = error_of<mismatch_error>([&] { (void)wait_all(coming); });
      CHECK_CONTAINS(problem.what(), "tag 1");
      CHECK(coming[2].done());
      CHECK(coming[2].wait() == "last");
      CHECK_THROWS_AS((void)coming[1].wait(), mismatch_error);
    }
    check_usable(world);  // no error is left behind
  });
}

TEST_CASE("wait_any, wait_all: works that were moved from, and waits inside a callable, are a usage_error") {
  at_every_size([](const process_group& world) {
    std::vector<work<int>> works;
    works.push_back(all_reduce_async(1, reduce_op::sum, world));
    const work<int> taken = std::move(works[0]);
    CHECK_CONTAINS(error_of<usage_error>([&] { (void)wait_any(works); }).what(), "moved from");
    CHECK_CONTAINS(error_of<usage_error>([&] { (void)wait_all(works, 1s); }).what(), "moved from");

    std::vector<work<int>> later;
    std::atomic<bool> is_there{false};
    auto outer = all_reduce_async(
        std::string("a"),
        [&](const std::string& left, const std::string& right) {
          while (!is_there) {
            std::this_thread::yield();
          }
          CHECK_CONTAINS(error_of<usage_error>([&] { (void)wait_any(later); }).what(), "comes after it");
          CHECK_CONTAINS(error_of<usage_error>([&] { (void)wait_all(later); }).what(), "comes after it");
          return left + right;
        },
        world);
    later.push_back(all_reduce_async(1, reduce_op::sum, world));
    is_there = true;
    CHECK(outer.wait().size() == as_index(world.size()));
    CHECK(wait_any(later) == 0);
    CHECK(wait_all(later).front() == world.size());
    check_usable(world);
  });
}

TEST_CASE("wait_any: a receive from any rank fails where all others have left") {
  run_noted(2, {}, [](const process_group& world) {
    auto group = std::make_optional(world.split(0));
    if (world.rank() == 0) {
      group.reset();
      barrier(world);
    } else {
      std::vector<work<received<int>>> coming;
      coming.push_back(irecv<int>(any_source, *group));
      barrier(world);
      CHECK_FALSE(wait_any(coming, 50ms));  // with a limit, this rank may still send to itself
      CHECK(wait_any(coming) == 0);
      CHECK(error_of<peer_error>([&] { (void)coming[0].wait(); }).peer() == 0);
    }
  });
}

TEST_CASE("wait_any: of a work that another thread waits for in wait_any is a usage_error there") {
  run_noted(1, {}, [](const process_group& world) {
    std::vector<work<int>> coming;
    coming.push_back(irecv<int>(0, world, 1));
    std::atomic<int> refused{0};
    const auto waits = [&] {
      try {
        const std::size_t index = wait_any(coming);
        CHECK(index == 0);
      } catch (const usage_error&) {
        ++refused;
      }
    };
    std::thread first(waits);
    std::thread second(waits);
    wait_until([&] { return refused == 1; });
    isend(7, 0, world, 1).wait();
    first.join();
    second.join();
    CHECK(refused == 1);
    CHECK(coming[0].wait() == 7);
  });
}

}  // namespace
