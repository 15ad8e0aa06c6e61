// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <random>

#include <unistd.h>

#include <hfcomm/ddp.hpp>

#include "processes.hpp"

namespace {

using namespace hfcomm;
using namespace std::chrono_literals;

constexpr int kinds = 10;  // of operations

/// Runs a rank: writes a byte to `sign` at the beginning, then runs all kinds of operations until one throws, and
/// reports the error.
void run_until_error(const std::string& name, int rank, int ranks, int kind, int sign) {
  auto options = processes::job_options(name, rank, ranks);
  options.start_timeout = 3s;
  (void)!::write(sign, "b", 1);
  session own = init(options);
  processes::report("ready");
  std::vector<float> large(300'000, 1.0F);
  std::vector<float> small(16, 1.0F);
  auto shared = world().allocate<float>(large.size());
  const std::map<std::string, double> metrics{{"loss", 1.0}, {"accuracy", 0.5}};
  std::vector<float> values(40'000);
  std::vector<float> gradients(values.size());
  try {
    distributed_data_parallel ddp({named_parameter("weights", values, gradients)});
    for (int turn = 0;; ++turn) {
      switch ((kind + (kind >= 100 ? 0 : turn)) % 100 % kinds) {
        case 0: barrier(); break;
        case 1: all_reduce(small); break;
        case 2: all_reduce(large); break;
        case 3: broadcast(std::span(large)); break;
        case 4: (void)all_gather(std::string(100'000, 'x')); break;
        case 5: (void)all_reduce_dict(metrics); break;
        case 6: std::this_thread::sleep_for(500us); break;  // between two operations
        case 7: {
          const master_first guard;
          std::this_thread::sleep_for(300us);
          break;
        }
        case 8: all_reduce(shared); break;
        default: ddp.mark_ready(0); ddp.finish();
      }
      if ((kind + (kind >= 100 ? 0 : turn)) % 100 % kinds == 6) {
        barrier();
      }
    }
  } catch (const error& problem) {
    const auto* peer = dynamic_cast<const peer_error*>(&problem);
    processes::report("culprit " + std::to_string(peer != nullptr && peer->fatal() ? peer->peer() : -1) + ": " +
                      problem.what());
  }
}

}  // namespace

TEST_CASE("SIGKILL: whichever rank dies and when, all others end within a second, name it and leave nothing behind") {
  const auto before = processes::leftovers::count();
  std::mt19937 random(20261121);
  int slowest_ms = 0;
  int never_there = 0;
  for (int round = 0; round < 200; ++round) {
    const int ranks = 2 + round % 3;
    const int victim = static_cast<int>(random() % static_cast<unsigned>(ranks));
    // Every other round stays with one kind of operation, so that each kind is hit in the middle.
    const int kind = round % 2 == 0 ? 0 : 100 + round % kinds;
    const std::string name = "kill-" + std::to_string(::getpid()) + '-' + std::to_string(round);
    int begun[2];
    REQUIRE(::pipe(begun) == 0);
    processes::child_processes children(ranks, [&](int rank) { run_until_error(name, rank, ranks, kind, begun[1]); });
    ::close(begun[1]);
    char sign{};
    for (int rank = 0; rank < ranks; ++rank) {
      REQUIRE(::read(begun[0], &sign, 1) == 1);
    }
    ::close(begun[0]);
    std::this_thread::sleep_for(std::chrono::microseconds(15'000 + random() % 30'000));
    const auto killed = processes::clock::now();
    children.kill(victim, SIGKILL);
    const auto outcomes = children.wait(20s);
    // The others cannot know a rank that was killed before it connected: they wait until the deadline.
    const std::string absence = "rank " + std::to_string(victim) + " did not come";
    const bool was_there = std::none_of(outcomes.begin(), outcomes.end(), [&](const auto& outcome) {
      return outcome.output.find(absence) != std::string::npos;
    });
    never_there += was_there ? 0 : 1;
    for (int rank = 0; rank < ranks; ++rank) {
      const auto& outcome = outcomes[static_cast<std::size_t>(rank)];
      if (rank == victim) {
        CHECK(outcome.killed_by(SIGKILL));
        continue;
      }
      INFO("round ", round, ", rank ", rank, " of ", ranks, ", victim ", victim, ", kind ", kind,
           " said: ", outcome.output);
      const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(outcome.ended - killed);
      if (!was_there) {
        CHECK(outcome.exited_with(1));
        CHECK(took < 10s);
        continue;
      }
      CHECK(took < 1s);
      slowest_ms = std::max(slowest_ms, static_cast<int>(took.count()));
      if (outcome.output.find("ready") != std::string::npos) {
        CHECK(outcome.exited_with(0));
        CHECK(outcome.output.find("culprit " + std::to_string(victim) + ": ") != std::string::npos);
        CHECK(outcome.output.find("rank " + std::to_string(victim) + " (pid " + std::to_string(children.pid(victim))) !=
              std::string::npos);
      } else {
        CHECK(outcome.exited_with(1));  // killed while the job was starting: init throws
        CHECK(outcome.output.find("went away while the job was starting") != std::string::npos);
      }
    }
  }
  MESSAGE("slowest survivor ended " << slowest_ms << " ms after the kill");
  CHECK(never_there < 50);
  CHECK(processes::leftovers::count() == before);
  CHECK(::waitpid(-1, nullptr, WNOHANG) == -1);  // no process left
}

TEST_CASE("stopped rank: the others wait, and continue when it does") {
  const std::string name = "stop-" + std::to_string(::getpid());
  processes::child_processes children(3, [&](int rank) {
    session own = init(processes::job_options(name, rank, 3));
    for (int turn = 0; turn < 300; ++turn) {
      barrier();
      std::this_thread::sleep_for(1ms);
    }
    processes::report("done");
  });
  std::this_thread::sleep_for(100ms);
  children.kill(1, SIGSTOP);
  std::this_thread::sleep_for(700ms);
  children.kill(1, SIGCONT);
  for (const auto& outcome : children.wait(20s)) {
    INFO(outcome.output);
    CHECK(outcome.exited_with(0));
  }
}

TEST_CASE("stopped rank: after the deadline every other rank names it") {
  const std::string name = "stop-for-good-" + std::to_string(::getpid());
  processes::child_processes children(3, [&](int rank) {
    session own = init(processes::job_options(name, rank, 3));
    const auto group = world().with_timeout(500ms);
    try {
      for (;;) {
        barrier(group);
      }
    } catch (const timeout_error& problem) {
      processes::report(problem.what());
      if (problem.missing() != std::vector<int>{2}) {
        throw;
      }
    }
  });
  std::this_thread::sleep_for(100ms);
  children.kill(2, SIGSTOP);
  std::this_thread::sleep_for(1500ms);
  children.kill(2, SIGKILL);
  const auto outcomes = children.wait(20s);
  for (int rank = 0; rank < 2; ++rank) {
    const auto& outcome = outcomes[static_cast<std::size_t>(rank)];
    INFO(outcome.output);
    CHECK(outcome.exited_with(0));
    CHECK(outcome.output.find("rank 2 did not arrive at barrier") != std::string::npos);
    CHECK(outcome.output.find("within 500 ms") != std::string::npos);
    CHECK(outcome.output.find("kill_test.cpp:") != std::string::npos);
  }
}

TEST_CASE("ended rank: the others are told of a return, an exit, an abort and an uncaught exception") {
  struct ending {
    const char* how;
    void (*end)();
    const char* told;
  };
  const ending endings[] = {
      {"exit", [] { std::_Exit(3); }, "ended without a word"},
      {"abort", [] { std::abort(); }, "ended without a word"},
      {"terminate", [] { std::thread([] { throw std::runtime_error("the disk is full"); }).join(); },
       "failed: the disk is full"},
      {"return", [] {}, "has left the job"},
  };
  for (const auto& one : endings) {
    const std::string name = std::string("end-") + one.how + std::to_string(::getpid());
    processes::child_processes children(3, [&](int rank) {
      std::optional<session> own;
      own.emplace(init(processes::job_options(name, rank, 3)));
      barrier();
      if (rank == 1) {
        std::freopen("/dev/null", "w", stderr);  // std::terminate reports there
        one.end();
        own.reset();
        return;
      }
      try {
        barrier();
        barrier();
      } catch (const peer_error& problem) {
        processes::report(problem.what());
        if (problem.peer() != 1) {
          throw;
        }
      }
    });
    const auto outcomes = children.wait(20s);
    for (const int rank : {0, 2}) {
      const auto& outcome = outcomes[static_cast<std::size_t>(rank)];
      INFO(one.how, ": ", outcome.output);
      CHECK(outcome.exited_with(0));
      CHECK(outcome.output.find("rank 1 (pid ") != std::string::npos);
      CHECK(outcome.output.find(one.told) != std::string::npos);
    }
  }
}
