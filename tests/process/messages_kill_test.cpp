// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <span>

#include "processes.hpp"

#include <hfcomm/collectives/recv.hpp>
#include <hfcomm/collectives/send.hpp>
#include <hfcomm/collectives/send_receive.hpp>

namespace {

using namespace hfcomm;
using namespace std::chrono_literals;

enum class traffic { sender, receiver, pairs, any_sender, asynchronous };
constexpr int traffic_kinds = 5;

/// Exchanges messages of this kind until an operation throws.
void exchange_until_error(traffic now, int rank, int ranks) {
  std::vector<char> out(std::size_t{8} << 20, 'o');
  std::vector<char> in(out.size());
  const int next = (rank + 1) % ranks;
  const int before = (rank + ranks - 1) % ranks;
  while (true) {
    switch (now) {
      case traffic::sender:
      case traffic::receiver:
        if (rank == 0) {
          send(std::span(std::as_const(out)), 1);
        } else if (rank == 1) {
          recv(std::span(in), 0);
        } else {
          barrier();  // nobody else comes
        }
        break;
      case traffic::pairs: send_receive(std::span(std::as_const(out)), next, std::span(in), before); break;
      case traffic::any_sender:
        if (rank == 0) {
          (void)recv<std::string>(any_source);
        } else {
          (void)recv<std::string>(0);  // never comes
        }
        break;
      case traffic::asynchronous: {
        auto coming = irecv(std::span(in), before);
        auto going = isend(std::span(std::as_const(out)), next);
        auto never = irecv<int>(any_source, world(), 9);
        coming.wait();
        going.wait();
        never.wait();
        break;
      }
    }
  }
}

void run_rank(traffic now, const std::string& name, int rank, int ranks, int ready) {
  session own = init(processes::job_options(name, rank, ranks));
  barrier();
  [[maybe_unused]] const auto written = ::write(ready, "!", 1);
  try {
    exchange_until_error(now, rank, ranks);
  } catch (const error& problem) {
    const auto* peer = dynamic_cast<const peer_error*>(&problem);
    processes::report("culprit " + std::to_string(peer != nullptr && peer->fatal() ? peer->peer() : -1) + ": " +
                      problem.what());
    if (!world().broken()) {
      processes::report("and the group is not broken");
    }
  }
}

}  // namespace

TEST_CASE("messages: after SIGKILL all others end within a second, name the rank and leave nothing behind") {
  const auto before = processes::leftovers::count();
  std::mt19937 random(11);
  int slowest_ms = 0;
  for (int round = 0; round < 60; ++round) {
    const auto now = static_cast<traffic>(round % traffic_kinds);
    const int ranks = 2 + static_cast<int>(random() % 3);
    const int victim = now == traffic::sender       ? 0
                       : now == traffic::receiver   ? 1
                       : now == traffic::any_sender ? 1 + static_cast<int>(random() % static_cast<unsigned>(ranks - 1))
                                                    : static_cast<int>(random() % static_cast<unsigned>(ranks));
    const std::string name = processes::unique_name("messages-kill-" + std::to_string(round));
    int ready[2];
    REQUIRE(::pipe(ready) == 0);
    processes::child_processes children(ranks, [&](int rank) { run_rank(now, name, rank, ranks, ready[1]); });
    ::close(ready[1]);
    char sign{};
    for (int rank = 0; rank < ranks; ++rank) {
      REQUIRE(::read(ready[0], &sign, 1) == 1);
    }
    ::close(ready[0]);
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 30'000));
    const auto killed = processes::clock::now();
    children.kill(victim, SIGKILL);
    const auto outcomes = children.wait(20s);
    for (int rank = 0; rank < ranks; ++rank) {
      const auto& outcome = outcomes[static_cast<std::size_t>(rank)];
      if (rank == victim) {
        CHECK(outcome.killed_by(SIGKILL));
        continue;
      }
      INFO("round ", round, ", traffic ", static_cast<int>(now), ", rank ", rank, " of ", ranks, ", victim ", victim,
           " said: ", outcome.output);
      const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(outcome.ended - killed);
      CHECK(took < 1s);
      slowest_ms = std::max(slowest_ms, static_cast<int>(took.count()));
      CHECK(outcome.exited_with(0));
      CHECK(outcome.output.find("culprit " + std::to_string(victim) + ": ") != std::string::npos);
      CHECK(outcome.output.find("rank " + std::to_string(victim) + " (pid " + std::to_string(children.pid(victim))) !=
            std::string::npos);
      CHECK(outcome.output.find("not broken") == std::string::npos);
    }
  }
  MESSAGE("slowest survivor ended " << slowest_ms << " ms after the kill");
  CHECK(processes::leftovers::count() == before);
}

TEST_CASE("messages: the child of a fork may not use them, and the parent's continue") {
  const std::string name = processes::unique_name("messages-fork");
  processes::child_processes children(2, [&](int rank) {
    session own = init(processes::job_options(name, rank, 2));
    const int other = 1 - rank;
    auto coming = irecv<std::string>(other);  // there is a thread for messages now
    const pid_t child = ::fork();
    if (child == 0) {
      int refused = 0;
      for (int kind = 0; kind < 3; ++kind) {
        try {
          if (kind == 0) {
            send(1, other);
          } else if (kind == 1) {
            (void)isend(1, other);
          } else {
            (void)coming.wait();
          }
        } catch (const usage_error& problem) {
          refused += std::string(problem.what()).find("fork") != std::string::npos ? 1 : 0;
        }
      }
      ::_exit(refused);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    barrier();
    auto going = isend(std::string(100'000, 'x'), other);
    processes::report(coming.wait() == std::string(100'000, 'x') && WIFEXITED(status) && WEXITSTATUS(status) == 3
                          ? "right"
                          : "wrong");
    going.wait();
  });
  for (const auto& outcome : children.wait(20s)) {
    INFO(outcome.output);
    CHECK(outcome.exited_with(0));
    CHECK(outcome.output == "right\n");
  }
}

TEST_CASE("messages: the first message of a group is refused in the child of a fork, and works in its parent") {
  const std::string name = processes::unique_name("first-message-fork");
  processes::child_processes children(2, [&](int rank) {
    session own = init(processes::job_options(name, rank, 2));
    const int other = 1 - rank;
    const pid_t child = ::fork();
    if (child == 0) {
      try {
        send(1, other);
      } catch (const usage_error& problem) {
        ::_exit(std::string(problem.what()).find("fork") != std::string::npos ? 7 : 1);
      }
      ::_exit(1);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    const bool is_refused = WIFEXITED(status) && WEXITSTATUS(status) == 7;
    processes::report(is_refused && send_receive(rank, other, other) == other ? "right" : "wrong");
  });
  for (const auto& outcome : children.wait(20s)) {
    INFO(outcome.output);
    CHECK(outcome.exited_with(0));
    CHECK(outcome.output == "right\n");
  }
}

TEST_CASE("messages: a group of one can use them before and after a fork") {
  const auto talk = [] {
    auto coming = irecv<std::string>(any_source);
    auto going = isend(std::string(100'000, 'y'), 0);
    going.wait();
    return coming.wait().value.size() == 100'000;
  };
  CHECK(talk());
  processes::child_processes children(1, [&](int /*rank*/) { processes::report(talk() ? "right" : "wrong"); });
  const auto outcomes = children.wait(20s);
  INFO(outcomes[0].output);
  CHECK(outcomes[0].exited_with(0));
  CHECK(outcomes[0].output == "right\n");
  CHECK(talk());
}
