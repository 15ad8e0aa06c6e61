// SPDX-License-Identifier: MIT
// Continuations of works, and works that nobody waits for.
#include "ranks.hpp"

#include <atomic>
#include <memory>
#include <span>
#include <thread>

namespace {

using namespace hfcomm;
using namespace multi_rank;
using namespace std::chrono_literals;

}  // namespace

TEST_CASE("then: it gives the function's value, whatever the two types are") {
  at_every_size([](const process_group& world) {
    const int n = world.size();
    const auto text = all_reduce_async(1, reduce_op::sum, world).then([](int sum) { return std::to_string(sum); });
    static_assert(std::is_same_v<decltype(text), const work<std::string>>);
    work<int> from_nothing = barrier_async(world).then([] { return 5; });
    CHECK(from_nothing.wait() == 5);
    int seen = 0;
    work<void> to_nothing = all_gather_async(world.rank(), world).then([&](const std::vector<int>& ranks) {
      seen = static_cast<int>(ranks.size());
    });
    to_nothing.wait();
    CHECK(seen == n);
    bool is_called = false;
    barrier_async(world).then([&] { is_called = true; }).wait();
    CHECK(is_called);
    check_usable(world);
  });
}

TEST_CASE("then: continuations can follow each other, and use the group") {
  at_every_size([](const process_group& world) {
    auto chain = all_reduce_async(1, reduce_op::sum, world)
                     .then([&](int sum) { return all_reduce(sum, reduce_op::sum, world); })
                     .then([](int sum) { return std::make_unique<int>(sum); })
                     .then([](std::unique_ptr<int> sum) { return *sum + 1; });
    CHECK(chain.wait() == world.size() * world.size() + 1);
    check_usable(world);
  });
}

TEST_CASE("then: a function that is done with is destroyed before its work is done") {
  at_every_size([](const process_group& world) {
    auto held = std::make_shared<int>(1);
    auto last = barrier_async(world).then([kept = held] { return *kept; });
    CHECK(last.wait() == 1);
    CHECK(held.use_count() == 1);
  });
}

TEST_CASE("then: for a work that is done it calls the function at once, on the caller's thread") {
  at_every_size([](const process_group& world) {
    auto pending = barrier_async(world);
    pending.wait();
    std::thread::id where;
    const auto after = std::move(pending).then([&] { where = std::this_thread::get_id(); });
    CHECK(where == std::this_thread::get_id());
    CHECK(after.done());
  });
}

TEST_CASE("then: errors pass through, and the function is not called then") {
  at_every_size([](const process_group& world) {
    bool is_called = false;
    auto wrong = all_gather_async(failing_object{.fails_to_save = true}, world).then([&](const auto& all) {
      is_called = true;
      return all.size();
    });
    CHECK_THROWS_WITH_AS((void)wrong.wait(), "cannot save this", std::domain_error);
    auto thrown = barrier_async(world).then([]() -> int { throw std::domain_error("from the function"); });
    CHECK_THROWS_WITH_AS((void)thrown.wait(), "from the function", std::domain_error);
    CHECK_FALSE(is_called);
    check_usable(world);
  });
}

TEST_CASE("then: of a work that was moved from it is a usage_error") {
  auto first = barrier_async();
  const auto second = std::move(first);
  // NOLINTBEGIN(bugprone-use-after-move): this is about what was moved from.
  CHECK_THROWS_AS((void)std::move(first).then([] {}), usage_error);
  CHECK_THROWS_AS(first.detach(), usage_error);
  CHECK_THROWS_AS(first.cancel(), usage_error);
  // NOLINTEND(bugprone-use-after-move)
}

TEST_CASE("then: waiting for it takes a message, also where every other rank has left") {
  run_noted(2, {}, [](const process_group& world) {
    for (int turn = 0; turn < 50; ++turn) {
      auto came = irecv<int>(1 - world.rank(), world).then([](int value) { return value + 1; });
      CHECK(send_receive(turn, 1 - world.rank(), 1 - world.rank(), world, 1) == turn);
      auto sent = isend(turn, 1 - world.rank(), world);
      CHECK(came.wait() == turn + 1);
      sent.wait();
    }
    const auto group = world.split(world.rank());
    CHECK_THROWS_AS((void)irecv<int>(any_source, group.with_timeout(100ms)).then([](auto) {}).wait(), timeout_error);
    check_usable(world);
  });
}

TEST_CASE("detach: it does not wait, and the operation is done all the same") {
  for (const int ranks : rank_counts_from(2)) {
    std::atomic<int> detached{0};
    run_noted(ranks, {}, [&](const process_group& world) {
      const int late = world.size() - 1;
      std::atomic<int> sum{1};
      if (world.rank() == late) {
        wait_until([&] { return detached == late; });
        CHECK(all_reduce_async(1, reduce_op::sum, world).wait() == world.size());
      } else {
        all_reduce_async(1, reduce_op::sum, world).then([&](int value) { sum = value; }).detach();
        ++detached;
        CHECK(sum == 1);
      }
      barrier(world);  // waits for the operation, but not for its continuation
      check_usable(world);
      if (world.rank() != late) {
        wait_until([&] { return sum == world.size(); });
      }
    });
  }
}

TEST_CASE("detach: a work that is done is let go at once") {
  at_every_size([](const process_group& world) {
    auto held = std::make_shared<int>(1);
    auto pending = barrier_async(world).then([kept = held] { return kept; });
    CHECK(pending.wait(1min));
    CHECK(held.use_count() == 2);
    pending.detach();
    CHECK(held.use_count() == 1);
    check_usable(world);
  });
}

TEST_CASE("detach: the group's next collective throws its error, whoever did it") {
  run_noted(2, {}, [](const process_group& world) {
    const auto group = world.split(0);
    const bool fails = world.rank() == 0;
    const auto start = [&] { return all_gather_async(failing_object{.fails_to_save = fails}, group); };
    const auto let_go = [&](auto& one) {
      if (fails) {
        one.detach();
      } else {
        CHECK_THROWS_AS((void)one.wait(), peer_error);
      }
    };
    const auto check_next = [&] { CHECK_THROWS_WITH(barrier(group), doctest::Contains("cannot save this")); };

    auto is_done = start();
    CHECK(is_done.wait(1min));
    let_go(is_done);
    check_next();

    auto under_way = start();
    let_go(under_way);
    check_next();

    auto continued = start().then([](const auto& all) { return all.size(); });
    let_go(continued);
    // The continuation passes the error on a moment after the operation. Until then collectives succeed.
    wait_until([&] {
      try {
        barrier(group);
        return false;
      } catch (const std::exception& problem) {
        CHECK_CONTAINS(problem.what(), "cannot save this");
        return true;
      }
    });
    check_usable(group);
  });
}

TEST_CASE("detach: the group lives until its messages are done") {
  run_noted(2, {}, [](const process_group& world) {
    static std::atomic<int> came{0};
    came = 0;
    {
      const auto group = world.split(0);
      const int other = 1 - world.rank();
      irecv<int>(other, group).then([](int value) { came += value; }).detach();
      isend(std::string(1 << 20, 'x'), other, group, 1).detach();
      irecv<std::string>(other, group, 1)
          .then([](const std::string& text) { came += text.size() == 1 << 20; })
          .detach();
      barrier(world);
      isend(10, other, group).detach();
    }
    wait_until([] { return came == 22; });
    barrier(world);
  });
}
