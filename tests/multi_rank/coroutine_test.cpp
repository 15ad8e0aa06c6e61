// SPDX-License-Identifier: MIT
#include <atomic>
#include <condition_variable>
#include <coroutine>
#include <exception>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "parts.hpp"

#include <hfcomm/group/work.hpp>

namespace {

using namespace hfcomm;
using namespace multi_rank;
using namespace std::chrono_literals;

/// A coroutine that begins at once, and whose end, value or exception, another thread can wait for.
template <class T>
class task {
  struct outcome {
    std::mutex mutex;
    std::condition_variable changed;
    bool done = false;
    std::optional<T> value;
    std::exception_ptr problem;
  };

 public:
  class promise_type {
   public:
    task get_return_object() { return task(outcome_); }
    std::suspend_never initial_suspend() noexcept { return {}; }
    /// Passes the outcome to the other thread only here, when nothing refers to the exception any more.
    std::suspend_never final_suspend() noexcept {
      const std::scoped_lock lock(outcome_->mutex);
      outcome_->done = true;
      outcome_->changed.notify_all();
      return {};
    }
    void return_value(T value) { outcome_->value = std::move(value); }
    void unhandled_exception() { outcome_->problem = std::current_exception(); }

   private:
    std::shared_ptr<outcome> outcome_ = std::make_shared<outcome>();
  };

  T get() {
    std::unique_lock lock(outcome_->mutex);
    outcome_->changed.wait(lock, [this] { return outcome_->done; });
    if (outcome_->problem) {
      std::rethrow_exception(std::exchange(outcome_->problem, nullptr));
    }
    return std::move(outcome_->value).value();
  }

 private:
  explicit task(std::shared_ptr<outcome> result) : outcome_(std::move(result)) {}
  std::shared_ptr<outcome> outcome_;
};

/// The parameters of coroutines are copied into them, so groups are taken by value.
task<int> add_up(process_group group, int rounds) {
  int sum = 0;
  for (int round = 0; round < rounds; ++round) {
    sum += co_await all_reduce_async(round, reduce_op::sum, group);
  }
  co_return sum;
}

TEST_CASE("coroutine: it awaits works one after the other and gets their values") {
  at_every_size([](const process_group& world) {
    CHECK(add_up(world, 100).get() == 4950 * world.size());
    check_usable(world);
  });
}

task<std::vector<std::string>> talk(process_group group) {
  std::vector<std::string> texts;
  for (const auto& text : co_await all_gather_async(text_of(group.rank(), 50'000), group)) {
    texts.push_back(text);
  }
  co_await barrier_async(group);
  auto first = all_reduce_async(1, reduce_op::sum, group);
  auto second = all_gather_async(std::to_string(group.rank()), group);
  for (auto& text : co_await second) {  // the first one is done by now: it goes on at once
    texts.push_back(std::move(text));
  }
  texts.push_back(std::to_string(co_await first));
  co_return texts;
}

TEST_CASE("coroutine: it awaits objects, works without a value, and several works in flight") {
  at_every_size([](const process_group& world) {
    std::vector<std::string> expected;
    expected.reserve(2 * as_index(world.size()) + 1);
    for (int rank = 0; rank < world.size(); ++rank) {
      expected.push_back(text_of(rank, 50'000));
    }
    for (int rank = 0; rank < world.size(); ++rank) {
      expected.push_back(std::to_string(rank));
    }
    expected.push_back(std::to_string(world.size()));
    CHECK((talk(world).get() == expected));
  });
}

task<int> on_two_groups(process_group one, process_group other) {
  int sum = 0;
  for (int round = 0; round < 20; ++round) {
    sum += co_await all_reduce_async(1, reduce_op::sum, one);
    sum += co_await all_reduce_async(10, reduce_op::sum, other);
    auto here = all_reduce_async(100, reduce_op::sum, one);
    auto there = all_reduce_async(1000, reduce_op::sum, other);
    sum += co_await there + co_await here;
  }
  co_return sum;
}

TEST_CASE("coroutine: two coroutines may await works of two groups in opposite order") {
  at_every_size([](const process_group& world) {
    const auto one = world.split(0);
    const auto other = world.split(0, -world.rank());
    CHECK(on_two_groups(one, other).get() == 20 * 1111 * world.size());
    const auto third = world.split(0);
    const auto fourth = world.split(0);
    auto up = on_two_groups(one, other);
    auto down = on_two_groups(third, fourth);
    CHECK(down.get() == 20 * 1111 * world.size());
    CHECK(up.get() == 20 * 1111 * world.size());
  });
}

/// Returns the text of the error.
template <class Error>
task<std::string> catch_one(process_group group, bool is_odd) {
  std::string text = "nothing was thrown";
  try {
    auto wrong = all_gather_async(failing_object{.fails_to_save = is_odd}, group);
    (void)co_await wrong;
  } catch (const Error& problem) {
    text = std::string("caught: ") + problem.what();
  }
  text += std::to_string(co_await all_reduce_async(1, reduce_op::sum, group));
  co_return text;
}

task<int> throw_on(process_group group, bool is_odd) {
  auto wrong = all_gather_async(failing_object{.fails_to_save = is_odd}, group);
  (void)co_await wrong;
  co_return 0;
}

TEST_CASE("coroutine: co_await throws the work's exception") {
  at_every_size([](const process_group& world) {
    const int odd = world.size() - 1;
    const bool is_odd = world.rank() == odd;
    const auto text =
        is_odd ? catch_one<std::domain_error>(world, true).get() : catch_one<peer_error>(world, false).get();
    CHECK_CONTAINS(text, "caught: ");
    CHECK_CONTAINS(text, "cannot save this");
    CHECK(text.ends_with(std::to_string(world.size())));
    auto thrown = throw_on(world, is_odd);
    if (is_odd) {
      CHECK_THROWS_WITH_AS((void)thrown.get(), "cannot save this", std::domain_error);
    } else {
      CHECK(error_of<peer_error>([&] { (void)thrown.get(); }).peer() == odd);
    }
    check_usable(world);
  });
}

TEST_CASE("coroutine: it resumes on the group's thread as the same rank") {
  at_every_size([](const process_group& world) {
    // Each rank uses a group of its own, because ranks may need different numbers of tries.
    const auto alone = world.split(world.rank());
    bool moved = false;
    const auto home = std::this_thread::get_id();
    auto trial = [](process_group group, process_group whole, std::thread::id origin, bool& gone) -> task<int> {
      while (std::this_thread::get_id() == origin) {
        co_await barrier_async(group);
      }
      gone = true;
      co_return hfcomm::rank() == whole.rank() && hfcomm::world() == whole&& is_initialized() ? 1 : 0;
    };
    CHECK(trial(alone, world, home, moved).get() == 1);
    CHECK(moved);
    check_usable(world);
  });
}

/// Makes every blocking call after it has resumed.
task<int> blocking(process_group group) {
  co_await barrier_async(group);
  int sum = all_reduce(1, reduce_op::sum, group);
  auto first = all_reduce_async(10, reduce_op::sum, group);
  auto second = all_reduce_async(100, reduce_op::sum, group);
  sum += second.wait();
  sum += co_await first;
  auto third = all_reduce_async(1000, reduce_op::sum, group);
  auto fourth = all_gather_async(10'000, group);
  while (!third.wait(1ms)) {
  }
  sum += third.wait();
  while (!fourth.done()) {
    std::this_thread::yield();
  }
  for (const int one : fourth.wait()) {
    sum += one;
  }
  std::vector<int> data(10'000, 100'000);
  {
    const auto dropped = all_reduce_async(data, reduce_op::sum, group);
  }
  sum += data.back();
  const auto inner = group.split(0);
  sum += co_await all_reduce_async(1'000'000, reduce_op::sum, inner);
  sum += all_reduce_async(10'000'000, reduce_op::sum, group).wait();
  co_return sum;
}

TEST_CASE("coroutine: after resuming it may call blocking collectives and wait for works in every way") {
  at_every_size([](const process_group& world) {
    for (int round = 0; round < 10; ++round) {
      CHECK(blocking(world).get() == 11'111'111 * world.size());
    }
  });
}

task<int> inner(process_group group, int depth) {
  const int sum = co_await all_reduce_async(1, reduce_op::sum, group);
  if (depth == 0) {
    co_return sum;
  }
  auto next = inner(group, depth - 1);
  co_return sum + next.get();  // blocks this thread, on which the group's operations ran
}

TEST_CASE("coroutine: one that blocks for another coroutine of the same group ends") {
  at_every_size([](const process_group& world) {
    for (int round = 0; round < 5; ++round) {
      CHECK(inner(world, 6).get() == 7 * world.size());
    }
  });
}

task<int> crossing(process_group first, process_group second) {
  int sum = co_await all_reduce_async(1, reduce_op::sum, first);
  auto later = all_reduce_async(10, reduce_op::sum, first);
  sum += all_reduce_async(100, reduce_op::sum, second).wait();
  sum += later.wait();
  co_return sum;
}

TEST_CASE("coroutine: two that block each other's group threads end, in any order of the ranks") {
  at_every_size([](const process_group& world) {
    std::vector<process_group> groups;
    groups.reserve(4);
    for (int i = 0; i < 4; ++i) {
      groups.push_back(world.split(0));
    }
    for (int round = 0; round < 10; ++round) {
      if (world.rank() % 2 == 0) {
        auto one = crossing(groups[0], groups[1]);
        auto other = crossing(groups[2], groups[3]);
        CHECK(one.get() + other.get() == 222 * world.size());
      } else {
        auto other = crossing(groups[2], groups[3]);
        auto one = crossing(groups[0], groups[1]);
        CHECK(one.get() + other.get() == 222 * world.size());
      }
    }
  });
}

TEST_CASE("coroutine: started operations complete while a coroutine occupies the thread") {
  std::atomic<int> suspended{0};
  run_noted(3, {}, [&](const process_group& world) {
    std::promise<void> release;
    std::atomic<bool> resumed{false};
    // Completes only after all ranks have awaited it, so the coroutine resumes on the other thread.
    const auto keep = [&suspended](process_group group, std::future<void> until, std::atomic<bool>& flag) -> task<int> {
      const int sum = co_await all_reduce_async(
          1,
          [&suspended](int left, int right) {
            wait_until([&] { return suspended == 3; });
            return left + right;
          },
          group);
      flag = true;
      until.wait();
      co_return sum;
    };
    auto kept = keep(world, release.get_future(), resumed);
    ++suspended;
    wait_until([&] { return resumed.load(); });
    CHECK(all_reduce_async(2, reduce_op::sum, world).wait() == 6);
    auto third = all_reduce_async(3, reduce_op::sum, world);
    CHECK(all_reduce(4, reduce_op::sum, world) == 12);
    CHECK(third.done());
    CHECK(third.wait() == 9);
    release.set_value();
    CHECK(kept.get() == 3);
  });
}

/// Owns its coroutine; the destructor destroys it at any suspension point.
class owned {
 public:
  struct promise_type {
    owned get_return_object() { return owned(std::coroutine_handle<promise_type>::from_promise(*this)); }
    std::suspend_never initial_suspend() noexcept { return {}; }
    std::suspend_always final_suspend() noexcept { return {}; }
    void return_void() {}
    void unhandled_exception() { std::terminate(); }
  };
  owned(owned&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  owned& operator=(owned&&) = delete;
  ~owned() {
    if (handle_) {
      handle_.destroy();
    }
  }

 private:
  explicit owned(std::coroutine_handle<promise_type> handle) : handle_(handle) {}
  std::coroutine_handle<promise_type> handle_;
};

owned wait_for(work<int>& awaited, int& result) { result = co_await awaited; }

/// Sets a flag in its destructor.
class opener {
 public:
  explicit opener(std::atomic<bool>& flag) : flag_(flag) {}
  opener(const opener&) = delete;
  opener& operator=(const opener&) = delete;
  ~opener() { flag_ = true; }

 private:
  std::atomic<bool>& flag_;
};
owned wait_here(process_group group, std::atomic<bool>& flag, int& result) {
  auto pending = all_reduce_async(1, reduce_op::sum, group);
  const opener open(flag);  // destroyed after the wait and before the work
  result = co_await pending;
}

TEST_CASE("coroutine: started messages complete while a coroutine that awaited one occupies its thread") {
  std::atomic<bool> awaits{false};
  std::atomic<bool> delivered{false};
  run_ranks(2, [&](const process_group& world) {
    if (world.rank() == 1) {
      while (!awaits.load()) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      send(1, 0, world);
      CHECK(recv<std::string>(0, world).size() == 5'000'000);
      delivered.store(true);
      return;
    }
    const auto until_delivered = [&](const process_group& group) -> work<int> {
      const int got = co_await irecv<int>(1, group);
      while (!delivered.load()) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      co_return got;
    };
    auto waiting = until_delivered(world);
    auto large = isend(std::string(5'000'000, 'x'), 1, world);
    awaits.store(true);
    // Without a wait: a thread that waits without a deadline would advance the message.
    while (!waiting.wait(std::chrono::milliseconds(1))) {
    }
    CHECK(waiting.wait() == 1);
    large.wait();
  });
}

TEST_CASE("coroutine: one destroyed while it waits is not resumed") {
  std::atomic<bool> may_come{false};
  run_noted(2, {}, [&](const process_group& world) {
    if (world.rank() == 1) {
      wait_until([&] { return may_come.load(); });
      CHECK(all_reduce_async(1, reduce_op::sum, world).wait() == 2);
      CHECK(all_reduce_async(1, reduce_op::sum, world).wait() == 2);
      return;
    }
    int result = 0;
    auto pending = all_reduce_async(1, reduce_op::sum, world);
    {
      const auto gone = wait_for(pending, result);
    }
    {
      const auto gone = wait_here(world, may_come, result);
    }
    CHECK(result == 0);
    CHECK(pending.wait() == 2);
  });
}

TEST_CASE("coroutine: a second one that awaits the same work gets a usage_error") {
  std::atomic<bool> may_come{false};
  run_noted(2, {}, [&](const process_group& world) {
    if (world.rank() == 1) {
      wait_until([&] { return may_come.load(); });
      CHECK(all_reduce_async(1, reduce_op::sum, world).wait() == 2);
      return;
    }
    const auto await = [](work<int>& awaited) -> task<int> { co_return co_await awaited; };
    auto pending = all_reduce_async(1, reduce_op::sum, world);
    auto first = await(pending);
    auto second = await(pending);
    CHECK_CONTAINS(error_of<usage_error>([&] { (void)second.get(); }).what(), "another coroutine awaits");
    may_come = true;
    CHECK(first.get() == 2);
    auto third = await(pending);
    CHECK_CONTAINS(error_of<usage_error>([&] { (void)third.get(); }).what(), "taken already");
  });
}

TEST_CASE("coroutine: the end of another rank is an exception at the co_await") {
  for (const int ranks : {2, 4}) {
    std::atomic<int> told{0};
    const auto rank_main = [&](const process_group& world) {
      if (world.rank() == 1) {
        throw std::domain_error("out of coffee");
      }
      try {
        (void)add_up(world, 3).get();
      } catch (const peer_error& problem) {
        told += problem.peer() == 1 && contains(problem.what(), "out of coffee") ? 1 : 0;
      }
    };
    CHECK_THROWS_WITH_AS(run_ranks(ranks, rank_main), "out of coffee", std::domain_error);
    CHECK(told == ranks - 1);
  }
}

task<int> last_handle(process_group group) {
  auto pending = all_reduce_async(1, reduce_op::sum, group);
  group = process_group();
  co_return co_await pending;
}

TEST_CASE("coroutine: it may hold the last handle of the group") {
  at_every_size([](const process_group& world) {
    for (int round = 0; round < 20; ++round) {
      CHECK(last_handle(world.split(0)).get() == world.size());
    }
    check_usable(world);
  });
}

}  // namespace
