// SPDX-License-Identifier: MIT
#include "ranks.hpp"

#include <atomic>
#include <span>

#include <hfcomm/collectives/recv.hpp>
#include <hfcomm/collectives/send.hpp>

namespace {

using namespace hfcomm;
using namespace multi_rank;
using namespace std::chrono_literals;

TEST_CASE("messages: at a receive's deadline the error names the silent rank and the messages it offers instead") {
  at_every_size(
      [](const process_group& world) {
        const auto group = world.split(0).with_timeout(300ms);
        std::vector<char> data(100'000);
        work<void> offer = isend(1, (world.rank() + 1) % world.size(), world);  // in another group: not to be named
        if (world.rank() == 1) {
          auto wrong_tag = isend(std::span(std::as_const(data)), 0, group.with_timeout(0ns), 4);
          barrier(world);
          CHECK_CONTAINS(error_of<timeout_error>([&] { wrong_tag.wait(); }).what(), "gave up");
        } else if (world.rank() == 0) {
          barrier(world);
          const auto problem = error_of<timeout_error>([&] { (void)recv<std::string>(1, group, 5); });
          CHECK((problem.missing() == std::vector<int>{1}));
          CHECK_CONTAINS(problem.what(), "rank 1 did not send the message of recv<std::string> #");
          CHECK_CONTAINS(problem.what(), "messages_loss_test.cpp:");
          CHECK_CONTAINS(problem.what(), "with tag 5 within 300 ms");
          CHECK_CONTAINS(problem.what(), "Rank 1 offers isend(100000 x ");
          CHECK_CONTAINS(problem.what(), "to rank 0, tag 4)");
        } else {
          barrier(world);
          CHECK_CONTAINS(error_of<timeout_error>([&] { (void)recv<int>(1, group.with_timeout(0ns)); }).what(),
                         "rank 0 gave up");
        }
        CHECK(group.broken());
        CHECK_CONTAINS(error_of<timeout_error>([&] { send(1, (group.rank() + 1) % group.size(), group); }).what(),
                       "rank 0 gave up");
        CHECK_CONTAINS(error_of<timeout_error>([&] { barrier(group); }).what(), "rank 0 gave up");
        CHECK(recv<int>((world.rank() + world.size() - 1) % world.size(), world) == 1);
        offer.wait();
        check_usable(world);
      },
      2);
}

TEST_CASE("messages: a send that no rank receives and a receive from any_source time out") {
  at_every_size(
      [](const process_group& world) {
        {
          const auto group = world.split(0).with_timeout(200ms);
          if (world.rank() == 0) {
            const auto problem = error_of<timeout_error>([&] { send(1, 1, group, 3); });
            CHECK((problem.missing() == std::vector<int>{1}));
            CHECK_CONTAINS(problem.what(), "rank 1 did not take the message of send<int> #1");
          }
          barrier(world);
          CHECK(group.broken());
        }
        const auto group = world.split(0).with_timeout(200ms);
        if (world.rank() == 0) {
          const auto problem = error_of<timeout_error>([&] { (void)recv<int>(any_source, group); });
          CHECK(problem.missing().size() == as_index(world.size() - 1));
          CHECK_CONTAINS(problem.what(), "did not send the message of recv<int> #1");
        }
        barrier(world);
        CHECK(group.broken());
        check_usable(world);
      },
      2);
}

TEST_CASE("messages: one to oneself that is not received times out") {
  run_noted(1, {}, [](const process_group& world) {
    const auto group = world.with_timeout(50ms);
    auto going = isend(1, 0, group, 2);
    CHECK_CONTAINS(error_of<timeout_error>([&] { going.wait(); }).what(), "rank 0 did not take the message");
  });
  const process_group alone = process_group().with_timeout(50ms);
  auto coming = irecv<int>(any_source, alone, 2);
  CHECK_CONTAINS(error_of<timeout_error>([&] { (void)coming.wait(); }).what(), "rank 0 did not send the message");
  CHECK_FALSE(alone.broken());
  CHECK(send_receive(5, 0, 0, alone) == 5);
}

TEST_CASE("messages: the deadline does not count time spent waiting behind other messages") {
  // The last of these starts to move long after its deadline; the ones before it move all the time.
  run_noted(2, {}, [](const process_group& world) {
    const auto group = world.split(0).with_timeout(1s);
    constexpr int count = 400;
    std::vector<work<void>> going;
    for (int number = 0; number < count; ++number) {
      if (world.rank() == 0) {
        going.push_back(isend(number, 1, group));
      } else {
        if (number % 25 == 0) {
          std::this_thread::sleep_for(150ms);  // several times within a deadline, envelopes become free
        }
        CHECK(recv<int>(0, group) == number);
      }
    }
    for (auto& one : going) {
      one.wait();
    }
    check_usable(group);
  });
}

TEST_CASE("messages: a rank that has left or leaves while others wait is a peer_error") {
  at_every_size(
      [](const process_group& world) {
        std::vector<char> data(1'000'000);
        for (const bool sends : {false, true}) {
          auto group = world.split(0);
          if (world.rank() == 1) {
            barrier(world);
            group = process_group();
          } else {
            barrier(world);
            const auto problem = error_of<peer_error>([&] {
              if (sends) {
                send(std::span(std::as_const(data)), 1, group);
              } else {
                recv(std::span(data), 1, group);
              }
            });
            CHECK(problem.peer() == 1);
            CHECK(problem.fatal());
            CHECK_CONTAINS(problem.what(), "rank 1 (thread of pid ");
            CHECK_CONTAINS(problem.what(), "has left the group");
            CHECK(group.broken());
            CHECK(error_of<peer_error>([&] { (void)irecv<int>(any_source, group).wait(); }).peer() == 1);
          }
          barrier(world);
        }
        check_usable(world);
      },
      2);
}

TEST_CASE("messages: all others name a rank that throws while they wait, with its text") {
  for (const int ranks : rank_counts_from(2)) {
    std::atomic<int> told{0};
    const auto run = [&] {
      run_ranks(ranks, [&](const process_group& world) {
        barrier(world);
        if (world.rank() == 1) {
          throw std::domain_error("the square root of a fish");
        }
        std::array<char, 100> data{};
        try {
          switch (world.rank() % 4) {
            case 0: recv(std::span(data), 1, world); break;
            case 2: (void)recv<int>(any_source, world); break;
            default: send(std::string(100'000, 'x'), 1, world);
          }
        } catch (const peer_error& problem) {
          const bool right =
              problem.peer() == 1 && problem.fatal() && contains(problem.what(), "failed: the square root of a fish");
          told += right ? 1 : 0;
          throw;
        }
      });
    };
    CHECK_THROWS_WITH_AS(run(), "the square root of a fish", std::domain_error);
    CHECK(told == ranks - 1);
  }
}

TEST_CASE("any_source: it is a peer_error only when all other ranks have left") {
  for (const int ranks : rank_counts_from(3)) {
    run_noted(ranks, {}, [](const process_group& world) {
      {
        const auto group = world.split(0);
        const int last = world.size() - 1;
        if (world.rank() == last) {
          std::this_thread::sleep_for(100ms);  // the others have left, and the first has noticed
          send(7, 0, group);
        } else if (world.rank() == 0) {
          const auto [value, source] = recv<int>(any_source, group);
          CHECK(value == 7);
          CHECK(source == last);
          CHECK_FALSE(group.broken());
          const auto problem = error_of<peer_error>([&] { (void)recv<int>(any_source, group); });
          CHECK(problem.fatal());
          CHECK_CONTAINS(problem.what(), "has left the group");
          CHECK(group.broken());
        }
      }
      check_usable(world);
    });
  }
}

TEST_CASE("any_source: a rank that all others have left may still send to itself") {
  run_noted(2, {}, [](const process_group& world) {
    {
      const auto group = world.split(0);
      if (world.rank() == 0) {
        auto coming = irecv<int>(any_source, group);
        std::this_thread::sleep_for(100ms);  // the other has left, and the messages' thread has noticed
        CHECK_FALSE(coming.done());
        CHECK_FALSE(group.broken());
        auto going = isend(7, 0, group);
        const auto [value, source] = coming.wait();
        going.wait();
        CHECK(value == 7);
        CHECK(source == 0);
      }
    }
    check_usable(world);
  });
}

TEST_CASE("messages: those sent before the sender left are received, and only the next receive fails") {
  run_noted(2, {}, [](const process_group& world) {
    for (int turn = 0; turn < 50; ++turn) {
      auto group = world.split(0);
      if (world.rank() == 0) {
        send(text_of(turn, as_index(turn) * 3000), 1, group);
        group = process_group();
      } else {
        CHECK((recv<std::string>(0, group) == text_of(turn, as_index(turn) * 3000)));
      }
    }
    check_usable(world);
  });
}

}  // namespace
