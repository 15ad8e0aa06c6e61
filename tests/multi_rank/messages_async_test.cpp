// SPDX-License-Identifier: MIT
#include "ranks.hpp"

#include <atomic>
#include <chrono>
#include <coroutine>
#include <optional>
#include <span>
#include <thread>

#include <hfcomm/collectives/message_batch.hpp>
#include <hfcomm/collectives/recv.hpp>
#include <hfcomm/collectives/send.hpp>
#include <hfcomm/collectives/send_receive.hpp>

namespace {

using namespace hfcomm;
using namespace multi_rank;

TEST_CASE("messages: receives may be in flight during collectives of the same group") {
  at_every_size(
      [](const process_group& world) {
        const int next = (world.rank() + 1) % world.size();
        const int before = (world.rank() + world.size() - 1) % world.size();
        std::vector<char> in(500'000);
        auto coming = irecv(std::span(in), before, world, 1);
        auto object = irecv<std::string>(any_source, world, 2);
        std::vector<double> sum(10'000, 1.0);
        for (int turn = 0; turn < 10; ++turn) {
          barrier(world);
          all_reduce(sum, reduce_op::sum, world);
          CHECK_FALSE(coming.done());  // nobody sends before everybody has come to the last operation
          CHECK_FALSE(object.done());
          CHECK((all_gather(world.rank(), world).size() == as_index(world.size())));
        }
        const auto out = text_of(world.rank(), in.size());
        auto going = isend(std::span(out), next, world, 1);
        auto other = isend(out, next, world, 2);
        for (int turn = 0; turn < 10; ++turn) {
          all_reduce(sum, reduce_op::sum, world);
        }
        coming.wait();
        CHECK((std::string(in.begin(), in.end()) == text_of(before, in.size())));
        CHECK(object.wait().source == before);
        going.wait();
        other.wait();
        check_usable(world);
      },
      2);
}

TEST_CASE("messages: they may be mixed with asynchronous collectives") {
  at_every_size([](const process_group& world) {
    const int next = (world.rank() + 1) % world.size();
    const int before = (world.rank() + world.size() - 1) % world.size();
    std::vector<float> sum(50'000, 1.0F);
    for (int turn = 0; turn < 20; ++turn) {
      auto meeting = barrier_async(world);
      CHECK(send_receive(world.rank() + turn, next, before, world) == before + turn);
      auto coming = irecv<int>(before, world);
      meeting.wait();
      auto going = isend(turn, next, world);
      CHECK(coming.wait() == turn);
      going.wait();
    }
    check_usable(world);
  });
}

TEST_CASE("messages: groups are separate, even with equal ranks and tags") {
  at_every_size(
      [](const process_group& world) {
        const auto turned = world.split(0, -world.rank());
        const auto parity = world.split(world.rank() % 2);
        const int me = world.rank();
        std::vector<work<void>> going;
        for (int other = 0; other < world.size(); ++other) {
          going.push_back(isend(std::string("world"), other, world));
          going.push_back(isend(std::string("turned"), other, turned));
        }
        for (int other = 0; other < parity.size(); ++other) {
          going.push_back(isend(std::string("parity"), other, parity));
        }
        for (int number = 0; number < world.size(); ++number) {
          const auto came = irecv<std::string>(any_source, turned).wait();
          CHECK(came.value == "turned");
        }
        for (int other = 0; other < parity.size(); ++other) {
          CHECK(irecv<std::string>(other, parity).wait() == "parity");
        }
        for (int other = 0; other < world.size(); ++other) {
          CHECK(irecv<std::string>(other, world).wait() == "world");
        }
        going.clear();
        CHECK(send_receive(me, world.size() - 1 - turned.rank(), world.size() - 1 - turned.rank(), turned) ==
              world.size() - 1 - me);
        check_usable(world);
      },
      2);
}

TEST_CASE("messages: dropped works are waited for, in any order") {
  at_every_size([](const process_group& world) {
    for (int turn = 0; turn < 10; ++turn) {
      std::vector<char> in(300'000);
      const auto out = text_of(world.rank(), in.size());
      {
        const int next = (world.rank() + 1) % world.size();
        const int before = (world.rank() + world.size() - 1) % world.size();
        const auto coming = irecv(std::span(in), before, world);
        const auto going = isend(std::span(out), next, world);
      }
      const int before = (world.rank() + world.size() - 1) % world.size();
      CHECK((std::string(in.begin(), in.end()) == text_of(before, in.size())));
    }
    check_usable(world);
  });
}

TEST_CASE("messages: the error of a dropped work is thrown once, by the group's next collective") {
  run_noted(2, {}, [](const process_group& world) {
    if (world.rank() == 0) {
      {
        const auto going = isend(std::string("text"), 1, world);
      }
      const auto problem = error_of<mismatch_error>([&] { barrier(world); });
      CHECK_CONTAINS(problem.what(), "isend(an object of type ");
    } else {
      CHECK_THROWS_AS((void)recv<int>(0, world), mismatch_error);
      const auto problem = error_of<peer_error>([&] { barrier(world); });
      CHECK(problem.peer() == 0);
      CHECK_CONTAINS(problem.what(), "isend(an object of type ");
    }
    check_usable(world);
    // An error that wait has thrown is thrown there only.
    if (world.rank() == 0) {
      auto going = isend(std::string("text"), 1, world);
      CHECK_THROWS_AS(going.wait(), mismatch_error);
      CHECK_THROWS_AS(going.wait(), mismatch_error);
      CHECK(going.error() != nullptr);
    } else {
      CHECK_THROWS_AS((void)recv<int>(0, world), mismatch_error);
    }
    check_usable(world);
  });
}

TEST_CASE("messages: a work has done, a wait with a deadline, and a value that can be taken once") {
  run_noted(2, {}, [](const process_group& world) {
    if (world.rank() == 0) {
      auto coming = irecv<std::string>(1, world);
      CHECK_FALSE(coming.done());
      CHECK_FALSE(coming.wait(std::chrono::milliseconds(20)));
      CHECK(coming.error() == nullptr);
      barrier(world);
      CHECK(coming.wait(std::chrono::seconds(30)));
      CHECK(coming.done());
      CHECK(coming.wait() == "here");
      CHECK_THROWS_AS((void)coming.wait(), usage_error);
    } else {
      barrier(world);
      send(std::string("here"), 0, world);
    }
    check_usable(world);
  });
}

/// A coroutine that nobody owns; it counts itself in `ended` at its end.
struct detached {
  struct promise_type {
    static detached get_return_object() noexcept { return {}; }
    static std::suspend_never initial_suspend() noexcept { return {}; }
    static std::suspend_never final_suspend() noexcept { return {}; }
    static void return_void() noexcept {}
    [[noreturn]] static void unhandled_exception() noexcept { std::terminate(); }
  };
};

detached relay(process_group group, int from, int to, int rounds, std::atomic<int>& sum, std::atomic<int>& ended) {
  const int self = group.rank();
  for (int round = 0; round < rounds; ++round) {
    const auto [value, source] = co_await irecv<int>(any_source, group, 1);
    sum += value * (source == from ? 1 : 1000);
    co_await isend(value + 1, to, group, 1);
    CHECK(world().rank() == self);  // on any thread it is this rank
  }
  ++ended;
}

TEST_CASE("co_await: a coroutine continues as this rank when its message arrives") {
  const auto run = [](const process_group& world) {
    constexpr int rounds = 50;
    std::atomic<int> sum{0};
    std::atomic<int> ended{0};
    const int before = (world.rank() + world.size() - 1) % world.size();
    const int next = (world.rank() + 1) % world.size();
    const auto group = world.split(0);
    std::vector<work<void>> token;  // each rank increments it and passes it on
    if (world.rank() == 0) {
      token.push_back(isend(0, next, group, 1));  // before the group has started its thread
    }
    relay(group, before, next, rounds, sum, ended);
    // The last increment is a message that no coroutine receives.
    if (world.rank() == 1) {
      wait_until([&] { return ended == 1; });
      CHECK(irecv<int>(before, group, 1).wait() == rounds * world.size());
    }
    wait_until([&] { return ended == 1; });
    int expected = 0;
    for (int round = 0; round < rounds; ++round) {
      expected += round * world.size() + before;
    }
    CHECK(sum == expected);
    check_usable(world);
  };
  at_every_size(run, 2);
}

detached first_waits(process_group group, work<int>& second, std::atomic<int>& got) {
  (void)co_await irecv<int>(any_source, group, 1);
  got = second.wait();  // blocks the thread it is on
}

work<void> note_thread(work<int> message, std::thread::id& thread) {
  (void)co_await message;
  thread = std::this_thread::get_id();
}

TEST_CASE("co_await: a coroutine that is waited for continues on the waiting thread when its message arrives") {
  run_noted(2, {}, [](const process_group& world) {
    int here = 0;  // not in every turn: a message may arrive before the wait
    for (int turn = 0; turn < 50; ++turn) {
      if (world.rank() == 0) {
        std::thread::id thread;
        note_thread(irecv<int>(1, world), thread).wait();
        here += thread == std::this_thread::get_id() ? 1 : 0;
      } else {
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
        send(turn, 0, world);
      }
    }
    CHECK((here > 0) == (world.rank() == 0));
  });
}

TEST_CASE("co_await: a continuation may wait for another message that arrived at the same time") {
  run_noted(2, {}, [](const process_group& world) {
    for (int turn = 0; turn < 50; ++turn) {
      if (world.rank() == 0) {
        barrier(world);
        auto one = isend(1, 1, world, 1);
        auto two = isend(turn, 1, world, 2);
        one.wait();
        two.wait();
      } else {
        std::atomic<int> got{-1};
        auto second = irecv<int>(0, world, 2);
        first_waits(world, second, got);
        barrier(world);
        wait_until([&] { return got != -1; });
        CHECK(got == turn);
      }
    }
    check_usable(world);
  });
}

}  // namespace
