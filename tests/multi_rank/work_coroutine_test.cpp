// SPDX-License-Identifier: MIT
// Coroutines that return a work.
#include "ranks.hpp"

#include <memory>
#include <span>

namespace {

using namespace hfcomm;
using namespace multi_rank;

work<double> mean(double mine, process_group group) {
  const double sum = co_await all_reduce_async(mine, reduce_op::sum, group);
  co_return sum / group.size();
}

work<std::vector<std::string>> three_steps(process_group group) {
  std::vector<std::string> steps;
  std::string text = group.rank() == 0 ? "root" : "";
  co_await broadcast_async(text, 0, group);
  steps.push_back(text);
  auto everyone = all_gather_async(group.rank(), group);
  const auto ranks = co_await everyone;
  steps.push_back(std::to_string(ranks.size()));
  const double average = co_await mean(group.rank(), group);
  steps.push_back(std::to_string(static_cast<int>(2 * average)));
  // Blocking, on the thread on which it goes on.
  steps.push_back(std::to_string(all_reduce(1, reduce_op::sum, group)));
  co_return steps;
}

work<void> fails(process_group group, bool at_once) {
  if (!at_once) {
    co_await barrier_async(group);
  }
  throw std::runtime_error("from the coroutine");
}

work<int> goes_round(process_group group) {
  const int next = (group.rank() + 1) % group.size();
  const int previous = (group.rank() + group.size() - 1) % group.size();
  auto sent = isend(group.rank(), next, group);
  const int came = co_await irecv<int>(previous, group);
  co_await sent;
  co_return came;
}

work<void> holds(std::shared_ptr<int> held, process_group group) {
  const auto mine = held;
  co_await barrier_async(group);
}

}  // namespace

TEST_CASE("work_coroutine: it awaits works, and can be waited for") {
  at_every_size([](const process_group& world) {
    CHECK(mean(world.rank(), world).wait() == (world.size() - 1) / 2.0);
    auto steps = three_steps(world);
    CHECK(steps.wait() == std::vector<std::string>{"root", std::to_string(world.size()),
                                                   std::to_string(world.size() - 1), std::to_string(world.size())});
    CHECK(steps.done());
    check_usable(world);
  });
}

TEST_CASE("work_coroutine: several may run at once in groups of their own") {
  at_every_size([](const process_group& world) {
    std::vector<work<double>> means;
    for (int i = 0; i < 5; ++i) {
      means.push_back(mean(world.rank() + i, world.split(0)));
    }
    for (int i = 0; i < 5; ++i) {
      CHECK(means[as_index(i)].wait() == (world.size() - 1) / 2.0 + i);
    }
  });
}

TEST_CASE("work_coroutine: it may await messages") {
  at_every_size([](const process_group& world) {
    CHECK(goes_round(world).wait() == (world.rank() + world.size() - 1) % world.size());
  });
}

TEST_CASE("work_coroutine: wait throws its exception") {
  at_every_size([](const process_group& world) {
    CHECK_THROWS_WITH(fails(world, true).wait(), "from the coroutine");
    CHECK_THROWS_WITH(fails(world, false).wait(), "from the coroutine");
    check_usable(world);
  });
}

TEST_CASE("work_coroutine: a dropped one runs to its end and destroys its locals") {
  at_every_size([](const process_group& world) {
    const auto held = std::make_shared<int>(1);
    {
      const auto dropped = holds(held, world);
    }
    CHECK(held.use_count() == 1);
  });
}

TEST_CASE("work_coroutine: a dropped one's exception is not lost") {
  CHECK_THROWS_WITH(run_ranks(2, [](const process_group& world) { const auto dropped = fails(world, true); }),
                    "from the coroutine");
}
