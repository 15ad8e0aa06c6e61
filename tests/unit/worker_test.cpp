// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

#include <sys/wait.h>
#include <unistd.h>

#include <hfcomm/comm.hpp>
#include <hfcomm/machine/worker.hpp>

using hfcomm::detail::worker;

namespace {

constexpr std::chrono::milliseconds short_time{1};

/// Counts the jobs that its thread has done.
class counting_owner {
 public:
  void start() {
    worker_.start(worker_.lock(), {}, "counting", [this] {
      auto held = worker_.lock();
      while (worker_.wait_for_work(held, [this] { return jobs_ != 0; })) {
        --jobs_;
        ++done_;
        worker_.wake();
      }
    });
  }
  void push() {
    {
      const auto held = worker_.lock();
      ++jobs_;
    }
    worker_.wake();
  }
  void drain() {
    auto held = worker_.lock();
    worker_.wait(held, [this] { return jobs_ == 0; });
  }
  [[nodiscard]] int done() {
    const auto held = worker_.lock();
    return done_;
  }
  worker& base() { return worker_; }

 private:
  int jobs_ = 0;
  int done_ = 0;
  worker worker_;
};

}  // namespace

TEST_CASE("worker: it does a job each time it is woken, until it is stopped") {
  counting_owner owner;
  owner.start();
  for (int job = 0; job < 100; ++job) {
    owner.push();
  }
  owner.drain();
  CHECK(owner.done() == 100);
  owner.base().stop();
  owner.push();
  CHECK(owner.done() == 100);
}

TEST_CASE("worker: a second start and a second stop do nothing") {
  counting_owner owner;
  owner.start();
  owner.start();
  owner.push();
  owner.drain();
  owner.base().stop();
  owner.base().stop();
  CHECK(owner.done() == 1);
}

TEST_CASE("worker: stop returns without a thread") {
  worker idle;
  idle.stop();
}

TEST_CASE("worker: stop on its own thread does not wait for itself") {
  const auto owner = std::make_shared<worker>();
  std::atomic<bool> ended{false};
  owner->start(owner->lock(), {}, "a test", [owner, &ended] {
    owner->stop();
    ended.store(true);
  });
  while (!ended.load()) {
    std::this_thread::sleep_for(short_time);
  }
}

TEST_CASE("worker: wait_for_interval returns at the interval, when woken and when stopped") {
  std::atomic<int> turns{0};
  worker watch;
  watch.start(watch.lock(), {}, "a test", [&] {
    auto held = watch.lock();
    while (watch.wait_for_interval(held, turns.load() < 3 ? short_time : std::chrono::minutes(10))) {
      ++turns;
    }
  });
  while (turns.load() < 3) {
    std::this_thread::sleep_for(short_time);
  }
  while (turns.load() < 4) {
    watch.wake();
    std::this_thread::sleep_for(short_time);
  }
  watch.stop();
  CHECK(turns.load() >= 4);
}

TEST_CASE("worker: in the child of a fork, stop and the destructor return at once") {
  auto owner = std::make_unique<counting_owner>();
  owner->start();
  owner->push();
  owner->drain();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // now its thread waits
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);
    owner->base().stop();
    owner.reset();
    ::_exit(0);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  CHECK(status == 0);
  owner->push();
  owner->drain();
  CHECK(owner->done() == 2);
}
