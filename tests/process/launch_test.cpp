// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <atomic>
#include <optional>

#include <sys/mman.h>

#include "processes.hpp"

namespace {

using namespace hfcomm;
using namespace std::chrono_literals;

/// Runs `body` in a process of its own, because launch() reports on stderr; returns what it wrote there and its status.
struct report {
  std::string text;
  int status = 0;
};

report run(const std::function<int()>& body) {
  processes::child_processes children(1, [&](int) {
    ::dup2(processes::report_pipe(), STDERR_FILENO);
    const int status = body();
    processes::report("status " + std::to_string(status));
  });
  const auto outcome = children.wait(60s).front();
  report result{outcome.output, -1};
  if (const auto at = outcome.output.rfind("status "); at != std::string::npos) {
    result.status = std::stoi(outcome.output.substr(at + 7));
  }
  return result;
}

/// A counter that all processes started from here share.
class shared_counter {
 public:
  shared_counter()
      : value_(::new(::mmap(nullptr, sizeof(std::atomic<int>), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
                            0)) std::atomic<int>(0)) {}
  shared_counter(const shared_counter&) = delete;
  shared_counter& operator=(const shared_counter&) = delete;
  ~shared_counter() { ::munmap(value_, sizeof(std::atomic<int>)); }
  std::atomic<int>& operator*() const { return *value_; }

 private:
  std::atomic<int>* value_;
};

}  // namespace

TEST_CASE("launch: every rank runs once and is connected, and the result is 0") {
  for (const int ranks : {1, 2, 3, 4, 8}) {
    const shared_counter sum;
    const auto result = run([&] {
      return launch(ranks, [&] {
        if (world_size() != ranks || local_size() != ranks || !is_initialized() || node_count() != 1) {
          throw std::runtime_error("a wrong world");
        }
        if (is_main_process() != (rank() == 0) || is_local_main_process() != (local_rank() == 0)) {
          throw std::runtime_error("a wrong main process");
        }
        *sum += all_reduce(rank() + 1, reduce_op::sum);
      });
    });
    INFO(result.text);
    CHECK(result.status == 0);
    CHECK(result.text == "status 0\n");
    CHECK((*sum).load() == ranks * ranks * (ranks + 1) / 2);
  }
}

TEST_CASE("launch: it returns the status of a rank that fails") {
  const auto result = run([] { return launch(3, [] { return rank() == 1 ? 7 : 0; }); });
  INFO(result.text);
  CHECK(result.status == 7);
  CHECK(result.text.find("rank 1 (pid ") != std::string::npos);
  CHECK(result.text.find("exited with status 7") != std::string::npos);
}

TEST_CASE("launch: it prints the text of the first exception, and not of those that follow from it") {
  const auto result = run([] {
    return launch(4, [] {
      if (rank() == 2) {
        throw std::runtime_error("the tokenizer has no vocabulary");
      }
      barrier();
    });
  });
  INFO(result.text);
  CHECK(result.status == 1);
  CHECK(result.text.find("[hfcomm] launch: rank 2 (pid ") != std::string::npos);
  CHECK(result.text.find("failed: the tokenizer has no vocabulary") != std::string::npos);
  CHECK(result.text.find("rank 0 (pid") == std::string::npos);
}

TEST_CASE("launch: it and the other ranks name the signal that killed a rank") {
  const shared_counter named;
  const auto result = run([&] {
    return launch(3, [&] {
      barrier();
      if (rank() == 1) {
        ::raise(SIGKILL);
      }
      try {
        barrier();
      } catch (const peer_error& problem) {
        *named += std::string(problem.what()).find("was killed by signal 9 (SIGKILL)") != std::string::npos &&
                  problem.peer() == 1;
        throw;
      }
    });
  });
  INFO(result.text);
  CHECK(result.status == 128 + SIGKILL);
  CHECK(result.text.find("was killed by signal 9 (SIGKILL)") != std::string::npos);
  CHECK((*named).load() == 2);
}

TEST_CASE("launch: it ends although SIGCHLD is ignored") {
  for (const int status : {0, 7}) {
    const auto result = run([&] {
      std::signal(SIGCHLD, SIG_IGN);  // as `trap '' CHLD` in a shell does
      return launch(2, [&] {
        barrier();
        return rank() == 1 ? status : 0;
      });
    });
    INFO(result.text);
    CHECK(result.status == status);
  }
}

TEST_CASE("launch: ranks that find several failed ranks name the first one") {
  const shared_counter right;
  const auto result = run([&] {
    return launch(3, [&] {
      const auto pair = world().subgroup({1, 2});
      if (rank() == 2) {
        throw std::runtime_error("disk full");
      }
      if (rank() == 1) {
        barrier(*pair);  // throws: rank 1 ends because of rank 2
      }
      std::this_thread::sleep_for(300ms);
      try {
        barrier();
      } catch (const peer_error& problem) {
        *right += problem.peer() == 2 && std::string(problem.what()).find("disk full") != std::string::npos;
      }
    });
  });
  INFO(result.text);
  CHECK((*right).load() == 1);
  CHECK(result.text.find("rank 2 (pid ") != std::string::npos);
}

TEST_CASE("launch: it stops ranks that do not end after a failure") {
  const auto start = processes::clock::now();
  const auto result = run([] {
    return launch(3, [] {
      if (rank() == 0) {
        throw std::runtime_error("early");
      }
      std::this_thread::sleep_for(600s);
    });
  });
  INFO(result.text);
  CHECK(result.status == 1);
  CHECK(result.text.find("rank 0 (pid ") != std::string::npos);
  CHECK(result.text.find("2 other ranks were stopped") != std::string::npos);
  CHECK(processes::clock::now() - start < 20s);
}

TEST_CASE("launch: no rank outlives the process that launched it") {
  const shared_counter alive;
  processes::child_processes children(1, [&](int) {
    launch(3, [&] {
      ++*alive;
      for (;;) {
        barrier();
      }
    });
  });
  for (int patience = 0; (*alive).load() < 3 && patience < 5000; ++patience) {
    std::this_thread::sleep_for(1ms);
  }
  std::vector<std::string> ranks;
  std::ifstream child_pids("/proc/" + std::to_string(children.pid(0)) + "/task/" + std::to_string(children.pid(0)) +
                           "/children");
  for (std::string pid; child_pids >> pid;) {
    ranks.push_back(pid);
  }
  REQUIRE(ranks.size() == 3);
  children.kill(0, SIGKILL);
  children.wait(10s);
  bool any = true;
  for (int patience = 0; any && patience < 2000; ++patience) {
    any = false;
    for (const auto& pid : ranks) {
      // A zombie that init has not collected yet has ended, too.
      std::ifstream status("/proc/" + pid + "/stat");
      std::string line;
      any = any || (std::getline(status, line) && line.find(") Z") == std::string::npos);
    }
    std::this_thread::sleep_for(1ms);
  }
  CHECK_FALSE(any);
}

TEST_CASE("launch: impossible arguments are a usage_error") {
  CHECK_THROWS_AS(launch(0, [] {}), usage_error);
  CHECK_THROWS_AS(launch(-3, [] {}), usage_error);
  CHECK_THROWS_AS(launch(1'000'000, [] {}), usage_error);
  const auto nested = run([] { return launch(2, [] { launch(2, [] {}); }); });
  INFO(nested.text);
  CHECK(nested.status == 1);
  CHECK(nested.text.find("this process is a rank already") != std::string::npos);
  const auto second = run([] { return launch(2, [] { const auto own = init(); }); });
  CHECK(second.status == 1);
  CHECK(second.text.find("is init called twice") != std::string::npos);
}

TEST_CASE("launch: in another launcher's job it is a usage_error, but launch(1) joins the job") {
  processes::child_processes children(2, [](int rank) {
    ::setenv("RANK", std::to_string(rank).c_str(), 1);
    ::setenv("WORLD_SIZE", "2", 1);
    ::setenv("LOCAL_RANK", std::to_string(rank).c_str(), 1);
    ::setenv("LOCAL_WORLD_SIZE", "2", 1);
    ::setenv("MASTER_ADDR", "127.0.0.1", 1);
    ::setenv("MASTER_PORT", std::to_string(20000 + ::getppid() % 20000).c_str(), 1);
    try {
      launch(4, [] {});
    } catch (const usage_error& problem) {
      processes::report(problem.what());
    }
    const int status = launch(1, [&] {
      processes::report("sum " + std::to_string(all_reduce(hfcomm::rank() + 1, reduce_op::sum)) + " of " +
                        std::to_string(world_size()));
    });
    processes::report("status " + std::to_string(status));
  });
  for (const auto& outcome : children.wait(30s)) {
    INFO(outcome.output);
    CHECK(outcome.output.find("torchrun variables make this process rank") != std::string::npos);
    CHECK(outcome.output.find("sum 3 of 2") != std::string::npos);
    CHECK(outcome.output.find("status 0") != std::string::npos);
  }
}

TEST_CASE("launch: many more ranks than cores work") {
  const auto result = run([] {
    return launch(64, [] {
      for (int turn = 0; turn < 5; ++turn) {
        if (all_reduce(1, reduce_op::sum) != 64) {
          throw std::runtime_error("a wrong sum");
        }
      }
    });
  });
  INFO(result.text);
  CHECK(result.status == 0);
}
