// SPDX-License-Identifier: MIT
#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <type_traits>

#include "parts.hpp"

#include <hfcomm/group/work.hpp>
#include <hfcomm/machine/work_queue.hpp>

// The behaviour of `work`, whatever its operation is.
namespace {

using namespace hfcomm;
using namespace multi_rank;
using namespace std::chrono_literals;

static_assert(std::is_nothrow_move_constructible_v<work<int>> && std::is_nothrow_move_assignable_v<work<int>> &&
              !std::is_copy_constructible_v<work<int>>);

TEST_CASE("work: done and wait with a limit tell whether a late rank has arrived") {
  for (const int ranks : rank_counts_from(2)) {
    std::atomic<int> looked{0};
    run_noted(ranks, {}, [&](const process_group& world) {
      const int late = world.size() - 1;
      if (world.rank() == late) {
        wait_until([&] { return looked == late; });
        CHECK((all_gather_async(world.rank(), world).wait().size() == as_index(world.size())));
        return;
      }
      auto pending = all_gather_async(world.rank(), world);
      CHECK_FALSE(pending.done());
      CHECK_FALSE(pending.wait(1ms));
      CHECK_FALSE(pending.wait(std::chrono::steady_clock::now()));
      CHECK_FALSE(pending.wait(-1h));
      CHECK(pending.error() == nullptr);
      CHECK_FALSE(pending.done());
      ++looked;
      CHECK(pending.wait(std::chrono::nanoseconds::max()));
      CHECK(pending.done());
      CHECK(pending.wait(1ms));
      CHECK(pending.error() == nullptr);
      CHECK(pending.wait().size() == as_index(world.size()));
    });
  }
}

TEST_CASE("work: a value can be taken once, an error any number of times") {
  at_every_size([](const process_group& world) {
    line_note note;
    auto value = all_reduce_async(2, reduce_op::sum, note(world));
    CHECK(value.wait() == 2 * world.size());
    const auto problem = error_of<usage_error>([&] { (void)value.wait(); });
    CHECK_CONTAINS(problem.what(), "taken already");
    CHECK_CONTAINS(problem.what(), note.text());
    CHECK(value.done());

    auto nothing = barrier_async(world);
    nothing.wait();
    nothing.wait();

    auto wrong = all_gather_async(failing_object{.fails_to_save = true}, world);
    for (int time = 0; time < 3; ++time) {
      CHECK_THROWS_WITH_AS((void)wrong.wait(), "cannot save this", std::domain_error);
      CHECK(wrong.error() != nullptr);
    }
    check_usable(world);
  });
}

TEST_CASE("work: using a moved-from one is a usage_error, and move assignment waits for the old one") {
  at_every_size([](const process_group& world) {
    auto first = all_reduce_async(1, reduce_op::sum, world);
    auto second = std::move(first);
    // NOLINTBEGIN(bugprone-use-after-move): this is about what was moved from.
    CHECK_THROWS_AS((void)first.done(), usage_error);
    CHECK_THROWS_AS((void)first.wait(), usage_error);
    CHECK_THROWS_AS((void)first.wait(1ms), usage_error);
    CHECK_THROWS_AS((void)first.error(), usage_error);
    // NOLINTEND(bugprone-use-after-move)
    first = all_reduce_async(10, reduce_op::sum, world);
    second = std::move(first);  // waits for the first one
    CHECK(second.wait() == 10 * world.size());
    auto& same = second;
    second = std::move(same);
    CHECK(second.done());

    std::vector<int> buffer(100'000, 1);
    auto in_place = all_reduce_async(buffer, reduce_op::sum, world);
    in_place = barrier_async(world);
    CHECK((buffer == std::vector<int>(100'000, world.size())));
    in_place.wait();
  });
}

TEST_CASE("work: dropping it waits for it") {
  at_every_size([](const process_group& world) {
    for (int round = 0; round < 30; ++round) {
      std::vector<int> data(10'000, 1);
      {
        const auto dropped = all_reduce_async(data, reduce_op::sum, world);
      }
      CHECK((data == std::vector<int>(10'000, world.size())));
    }
  });
}

TEST_CASE("work: an error that no wait has thrown is thrown by the group's next collective") {
  at_every_size([](const process_group& world) {
    for (const int odd : {0, world.size() - 1}) {
      const bool is_odd = world.rank() == odd;
      const auto fail = [&] {
        auto wrong = all_gather_async(failing_object{.fails_to_save = is_odd}, world);
        if (!is_odd) {
          CHECK_THROWS_AS((void)wrong.wait(), peer_error);
        }
      };
      const auto expect = [&](auto call) {
        fail();
        if (is_odd) {
          CHECK_THROWS_WITH_AS(call(), "cannot save this", std::domain_error);
        } else {
          const auto problem = error_of<peer_error>(call);
          CHECK(problem.peer() == odd);
          CHECK_CONTAINS(problem.what(), "an earlier operation of this rank failed");
          CHECK_CONTAINS(problem.what(), "cannot save this");
        }
        check_usable(world);
      };
      expect([&] { barrier(world); });
      expect([&] { (void)all_gather_async(1, world).wait(); });
      expect([&] { (void)world.split(0); });
      // An error that error() has returned is not thrown again.
      {
        const auto wrong = all_gather_async(failing_object{.fails_to_save = is_odd}, world);
        wait_until([&] { return wrong.done(); });
        CHECK(wrong.error() != nullptr);
      }
      check_usable(world);
    }
  });
}

TEST_CASE("work: a dropped error that is no std::exception does not leave the others waiting") {
  run_noted(3, {}, [](const process_group& world) {
    {
      auto wrong =
          all_reduce_async(1, [&](int left, int right) { return world.rank() == 1 ? throw 42 : left + right; }, world);
      if (world.rank() != 1) {
        CHECK(wrong.wait() == 3);  // it is thrown when nothing is left to do
      }
    }
    if (world.rank() == 1) {
      CHECK_THROWS_AS(barrier(world), int);
    } else {
      CHECK(error_of<peer_error>([&] { barrier(world); }).peer() == 1);
    }
    check_usable(world);
  });
}

TEST_CASE("work: a rank that ends while works are in flight is an error from wait") {
  for (const int ranks : rank_counts_from(2)) {
    std::atomic<int> told{0};
    const auto rank_main = [&](const process_group& world) {
      auto first = all_reduce_async(1, reduce_op::sum, world);
      CHECK(first.wait() == world.size());
      if (world.rank() == 1) {
        throw std::domain_error("out of coffee");
      }
      auto second = all_gather_async(text_of(world.rank(), 500'000), world);
      auto third = barrier_async(world);
      for (int time = 0; time < 2; ++time) {
        try {
          (void)second.wait();
        } catch (const peer_error& problem) {
          told += problem.peer() == 1 && problem.fatal() && contains(problem.what(), "out of coffee") ? 1 : 0;
        }
      }
      try {
        third.wait();
      } catch (const peer_error& problem) {
        told += problem.peer() == 1 ? 1 : 0;
      }
      (void)world.broken();
    };
    CHECK_THROWS_WITH_AS(run_ranks(ranks, rank_main), "out of coffee", std::domain_error);
    CHECK(told == 3 * (ranks - 1));
  }
}

TEST_CASE("work: a rank that throws with works in flight completes them, and its exception is the one reported") {
  std::atomic<int> sum{0};
  const auto rank_main = [&](const process_group& world) {
    std::vector<int> data(200'000, 1);
    auto pending = all_reduce_async(data, reduce_op::sum, world);
    if (world.rank() == 0) {
      throw std::domain_error("enough");
    }
    pending.wait();
    sum += data.back();
    barrier(world);
  };
  CHECK_THROWS_WITH_AS(run_ranks(3, rank_main), "enough", std::domain_error);
  CHECK(sum == 6);
}

TEST_CASE("work: the last handle of a group may be dropped while works are in flight") {
  at_every_size([](const process_group& world) {
    for (int round = 0; round < 20; ++round) {
      std::optional<process_group> group = world.split(0);
      auto kept = all_reduce_async(round, reduce_op::sum, *group);
      auto also_kept = all_gather_async(round, *group);
      group.reset();
      CHECK(also_kept.wait() == std::vector<int>(as_index(world.size()), round));
      CHECK(kept.wait() == round * world.size());
    }
    // And the works with it.
    for (int round = 0; round < 20; ++round) {
      const auto last = barrier_async(world.split(0));
    }
    check_usable(world);
  });
}

TEST_CASE("work: two threads in one group are a usage_error, and the group stays usable") {
  for (const int ranks : {2, 4}) {
    run_noted(ranks, {}, [&](const process_group& world) {
      if (world.rank() == 0) {
        std::atomic<bool> inside{false};
        std::atomic<bool> held{false};
        // Its callable keeps it inside the operation as long as the test needs.
        std::thread other([&] {
          try {
            std::vector<int> data(1, 1);
            all_reduce(
                std::span(data),
                [&](int left, int right) {
                  held = true;
                  wait_until([&] { return inside.load(); });
                  return left + right;
                },
                world);
          } catch (...) {
            held = true;
          }
        });
        wait_until([&] { return held.load(); });
        CHECK_CONTAINS(error_of<usage_error>([&] { auto refused = barrier_async(world); }).what(), "another thread");
        CHECK_CONTAINS(error_of<usage_error>([&] { barrier(world); }).what(), "another thread");
        inside = true;
        other.join();
      } else {
        std::vector<int> data(1, 1);
        all_reduce(std::span(data), [](int left, int right) { return left + right; }, world);
      }
      check_usable(world);
    });
  }
}

TEST_CASE("work: other threads may wait for it") {
  at_every_size([](const process_group& world) {
    auto first = all_reduce_async(1, reduce_op::sum, world);
    auto second = all_reduce_async(2, reduce_op::sum, world);
    int value = 0;
    std::thread other([&] { value = second.wait(); });
    CHECK(first.wait() == world.size());
    other.join();
    CHECK(value == 2 * world.size());
  });
}

/// Calls a function while it is saved.
struct calls_while_saved {
  std::function<void()> on_save = [] {};

  template <class Archive>
  void save(Archive& archive) const {
    on_save();
    archive(1);
  }
  template <class Archive>
  void load(Archive& archive) {
    int one = 0;
    archive(one);
  }
};

TEST_CASE("work: operations inside an operation of the same group are a usage_error") {
  at_every_size([](const process_group& world) {
    const auto expect = [&](const std::string& text, std::function<void()> inside) {
      auto pending = all_gather_async(calls_while_saved{std::move(inside)}, world);
      CHECK_CONTAINS(error_of<usage_error>([&] { (void)pending.wait(); }).what(), text);
      check_usable(world);
    };
    expect("called inside an operation of this group", [&] { barrier(world); });
    expect("started inside an asynchronous operation", [&] { barrier_async(world).wait(); });
    // Operations of another group are allowed there.
    const auto other = world.split(0);
    std::atomic<int> sum{0};
    (void)all_gather_async(calls_while_saved{[&] {
                             sum = all_reduce(1, reduce_op::sum, other);
                             sum += all_reduce_async(1, reduce_op::sum, other).wait();
                           }},
                           world)
        .wait();
    CHECK(sum == 2 * world.size());
  });
}

TEST_CASE(
    "work: inside an operation, waiting for a later one of the group is a usage_error, and dropping does not wait") {
  run_noted(2, {}, [](const process_group& world) {
    std::atomic<bool> started{false};
    std::optional<work<int>> later;
    std::string text;
    bool dropped = false;
    auto first = all_gather_async(calls_while_saved{[&] {
                                    wait_until([&] { return started.load(); });
                                    text = error_of<usage_error>([&] { (void)later->wait(); }).what();
                                    later.reset();
                                    dropped = true;
                                  }},
                                  world);
    later.emplace(all_reduce_async(1, reduce_op::sum, world));
    started = true;
    (void)first.wait();
    CHECK_CONTAINS(text, "for one that comes after it");
    CHECK(dropped);
    check_usable(world);
  });
}

TEST_CASE("work: the error of one dropped inside an operation is thrown by the next operation") {
  run_noted(2, {}, [](const process_group& world) {
    std::atomic<bool> started{false};
    std::optional<work<std::vector<failing_object>>> later;
    auto first = all_gather_async(calls_while_saved{[&] {
                                    wait_until([&] { return started.load(); });
                                    later.reset();
                                  }},
                                  world);
    later.emplace(all_gather_async(failing_object{.fails_to_save = true}, world));
    started = true;
    (void)first.wait();
    CHECK_THROWS_WITH_AS(barrier(world), "cannot save this", std::domain_error);
    check_usable(world);
  });
}

TEST_CASE("work_queue: it runs the items in order, one at a time") {
  const auto queue = std::make_shared<hfcomm::detail::work_queue>([] {});
  std::vector<int> order;  // no lock: one at a time
  for (int i = 0; i < 1000; ++i) {
    queue->push([&order, i]() -> std::function<void()> {
      order.push_back(i);
      return nullptr;
    });
  }
  queue->drain();
  CHECK(order.size() == 1000);
  CHECK(std::is_sorted(order.begin(), order.end()));
  queue->stop();
}

TEST_CASE("work_queue: the continuation of an item does not delay the next items") {
  const auto queue = std::make_shared<hfcomm::detail::work_queue>([] {});
  std::atomic<int> ran{0};
  std::atomic<int> after{0};
  std::atomic<bool> go_on{false};
  for (int i = 0; i < 8; ++i) {
    queue->push([&] {
      ++ran;
      return std::function<void()>([&] {
        wait_until([&] { return go_on.load(); });
        ++after;
      });
    });
  }
  queue->drain();
  CHECK(ran == 8);
  CHECK(after == 0);
  queue->stop();  // does not wait for what comes after, either
  CHECK(after == 0);
  go_on = true;
  wait_until([&] { return after == 8; });
}

TEST_CASE("work_queue: a thread that waits for the next item runs it, unless the queue's thread was faster") {
  const auto queue = std::make_shared<hfcomm::detail::work_queue>([] {});
  const auto caller = std::this_thread::get_id();
  int here = 0;
  int ran = 0;  // no lock: one at a time
  for (int i = 0; i < 1000; ++i) {
    queue->push(
        [&]() -> std::function<void()> {
          ++ran;
          here += std::this_thread::get_id() == caller ? 1 : 0;
          return nullptr;
        },
        &queue);
    queue->run_if_first(&queue);
    queue->drain();
    CHECK(ran == i + 1);
  }
  CHECK(here > 0);
  queue->stop();
}

TEST_CASE("work_queue: a thread that waits runs neither an item of others nor one beside another") {
  const auto queue = std::make_shared<hfcomm::detail::work_queue>([] {});
  const auto caller = std::this_thread::get_id();
  std::atomic<bool> has_begun{false};
  std::atomic<bool> go_on{false};
  std::vector<int> order;
  const auto first = [&]() -> std::function<void()> {
    has_begun = true;
    wait_until([&] { return go_on.load(); });
    order.push_back(1);
    CHECK(std::this_thread::get_id() != caller);
    return nullptr;
  };
  queue->push(first, &order);
  queue->run_if_first(&go_on);
  wait_until([&] { return has_begun.load(); });
  queue->push(
      [&]() -> std::function<void()> {
        order.push_back(2);
        return nullptr;
      },
      &go_on);
  queue->run_if_first(&go_on);
  CHECK(order.empty());
  go_on = true;
  queue->drain();
  CHECK(order == std::vector{1, 2});
  queue->stop();
}

TEST_CASE("work_queue: an item and its continuation may stop the queue") {
  for (const bool later : {false, true}) {
    std::atomic<bool> stopped{false};
    const auto queue = std::make_shared<hfcomm::detail::work_queue>([] {});
    // As the last handle of a group does.
    struct handle {
      std::shared_ptr<hfcomm::detail::work_queue> queue;
      std::atomic<bool>& stopped;
      ~handle() {
        queue->stop();
        stopped = true;
      }
    };
    auto last = std::make_shared<handle>(queue, stopped);
    if (later) {
      queue->push([last = std::move(last)]() mutable {
        return std::function<void()>([last = std::move(last)]() mutable { last.reset(); });
      });
    } else {
      queue->push([last = std::move(last)]() -> std::function<void()> { return nullptr; });
    }
    wait_until([&] { return stopped.load(); });
  }
}

}  // namespace
