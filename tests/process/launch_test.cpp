// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

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

TEST_CASE("launch: it knows how ranks end although SIGCHLD is ignored, and leaves that as it was") {
  for (const int status : {0, 7, 128 + SIGKILL}) {
    const auto result = run([&] {
      std::signal(SIGCHLD, SIG_IGN);  // as `trap '' CHLD` in a shell does
      const int returned = launch(2, [&] {
        if (std::signal(SIGCHLD, SIG_IGN) != SIG_IGN) {
          throw std::runtime_error("a rank has another handler");
        }
        barrier();
        if (rank() == 1 && status > 128) {
          ::raise(SIGKILL);
        }
        return rank() == 1 ? status : 0;
      });
      return std::signal(SIGCHLD, SIG_IGN) == SIG_IGN ? returned : -1;
    });
    INFO(result.text);
    CHECK(result.status == status);
    CHECK((result.text.find("SIGKILL") != std::string::npos) == (status > 128));
  }
}

TEST_CASE("launch: where other code waits for its ranks, it says that it does not know their status") {
  bool is_said = false;
  for (int attempt = 0; attempt < 20 && !is_said; ++attempt) {  // launch may be faster than the handler
    const auto reaped = run([] {
      std::signal(SIGCHLD, [](int) {
        while (::waitpid(-1, nullptr, WNOHANG) > 0) {
        }
      });
      return launch(2, [] {
        if (rank() == 1) {
          ::raise(SIGKILL);
        }
      });
    });
    INFO(reaped.text);
    is_said = reaped.text.find("its status is unknown") != std::string::npos;
    CHECK(reaped.status == (is_said ? 1 : 128 + SIGKILL));
  }
  CHECK(is_said);
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
    (void)launch(3, [&] {
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

TEST_CASE("launch: a wrong call is a line and status 2") {
  for (const int processes : {0, -3, 1'000'000}) {
    const auto result = run([&] { return launch(processes, [] {}); });
    INFO(result.text);
    CHECK(result.status == 2);
    CHECK(result.text.find("[hfcomm] launch at launch_test.cpp:") != std::string::npos);
    CHECK(result.text.find("the number must be from 1 to 1024") != std::string::npos);
  }
  const auto nested = run([] { return launch(2, [] { return launch(2, [] {}); }); });
  INFO(nested.text);
  CHECK(nested.status == 2);
  CHECK(nested.text.find("this process is a rank already") != std::string::npos);
  const auto second = run([] { return launch(2, [] { const auto own = init(); }); });
  CHECK(second.status == 1);
  CHECK(second.text.find("is init called twice") != std::string::npos);
  const auto incomplete = run([] {
    ::setenv("RANK", "0", 1);
    ::setenv("WORLD_SIZE", "2", 1);
    return launch(2, [] {});
  });
  CHECK(incomplete.status == 2);
  CHECK(incomplete.text.find("missing MASTER_ADDR, MASTER_PORT") != std::string::npos);
}

TEST_CASE("launch: in another launcher's job it joins the job, whatever number it asks for") {
  for (const int processes : {1, 4}) {
    processes::child_processes children(2, [&](int rank) {
      ::setenv("RANK", std::to_string(rank).c_str(), 1);
      ::setenv("WORLD_SIZE", "2", 1);
      ::setenv("LOCAL_RANK", std::to_string(rank).c_str(), 1);
      ::setenv("LOCAL_WORLD_SIZE", "2", 1);
      ::setenv("MASTER_ADDR", "127.0.0.1", 1);
      ::setenv("MASTER_PORT", std::to_string(20000 + ::getppid() % 20000).c_str(), 1);
      const int status = launch(processes, [&] {
        processes::report("sum " + std::to_string(all_reduce(hfcomm::rank() + 1, reduce_op::sum)) + " of " +
                          std::to_string(world_size()));
      });
      processes::report("status " + std::to_string(status));
    });
    for (const auto& outcome : children.wait(30s)) {
      INFO(outcome.output);
      CHECK(outcome.output == "sum 3 of 2\nstatus 0\n");
    }
  }
}

TEST_CASE("launch: in another launcher's job a failure is that of the rank that the launcher made") {
  const auto result = run([] {
    ::setenv("HFCOMM_RANK", "1", 1);
    ::setenv("HFCOMM_WORLD_SIZE", "2", 1);
    ::setenv("HFCOMM_JOB", processes::unique_name("joined-failure").c_str(), 1);
    const pid_t other = ::fork();
    if (other == 0) {
      ::dup2(::open("/dev/null", O_WRONLY), STDERR_FILENO);
      ::setenv("HFCOMM_RANK", "0", 1);
      ::_exit(launch(4, [] { barrier(); }));
    }
    const int status = launch(4, [] { throw std::runtime_error("the disk is full"); });
    ::waitpid(other, nullptr, 0);
    return status;
  });
  INFO(result.text);
  CHECK(result.status == 1);
  CHECK(result.text.find("launch: rank 1 failed: the disk is full") != std::string::npos);
}

TEST_CASE("launch: a launcher's job of one process counts as none") {
  const auto result = run([] {
    ::setenv("RANK", "0", 1);
    ::setenv("WORLD_SIZE", "1", 1);
    return launch(3, [] { return world_size(); });
  });
  CHECK(result.status == 3);
}

TEST_CASE("launch: it says what a rank that crashed called last, and where") {
  const auto result = run([] {
    return launch(3, [] {
      (void)all_reduce(1, reduce_op::sum);
      if (rank() == 1) {
        std::signal(SIGSEGV, SIG_DFL);
        ::raise(SIGSEGV);
      }
      barrier();
    });
  });
  INFO(result.text);
  CHECK(result.status == 128 + SIGSEGV);
  CHECK(result.text.find("was killed by signal 11 (SIGSEGV); it last called all_reduce(") != std::string::npos);
  CHECK(result.text.find("at launch_test.cpp:") != std::string::npos);
}

TEST_CASE("launch: with prefix_output each line says whose it is") {
  const auto print = [] {
    std::printf("one of %d\nand ", world_size());
    std::fflush(stdout);
    barrier();
    std::printf("two\n");
    std::fprintf(stderr, "an error");
  };
  for (const bool by_environment : {false, true}) {
    const auto result = run([&] {
      ::dup2(STDERR_FILENO, STDOUT_FILENO);
      if (by_environment) {
        ::setenv("HFCOMM_PREFIX_OUTPUT", "1", 1);
      }
      return launch(launch_options{.processes = 2, .prefix_output = !by_environment}, print);
    });
    INFO(result.text);
    CHECK(result.status == 0);
    std::istringstream text(result.text);
    std::multiset<std::string> lines;
    for (std::string line; std::getline(text, line);) {
      lines.insert(line);
    }
    CHECK((lines == std::multiset<std::string>{"[rank 0] one of 2", "[rank 0] and two", "[rank 0] an error",
                                               "[rank 1] one of 2", "[rank 1] and two", "[rank 1] an error",
                                               "status 0"}));
  }
}

TEST_CASE("launch: with output_directory each rank's output is in a file of its own") {
  const auto folder = std::filesystem::temp_directory_path() / processes::unique_name("hfcomm-launch-output");
  std::filesystem::create_directories(folder);
  const auto result = run([&] {
    return launch(launch_options{.processes = 2, .output_directory = folder.string()}, [] {
      std::printf("rank %d\n", rank());
      std::fprintf(stderr, "has an error\n");
    });
  });
  CHECK(result.text == "status 0\n");
  for (const int rank : {0, 1}) {
    std::ifstream file(folder / ("rank-" + std::to_string(rank) + ".log"));
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    CHECK(text == "rank " + std::to_string(rank) + "\nhas an error\n");
  }
  std::filesystem::remove_all(folder);
  const auto missing = run([&] { return launch(launch_options{2, false, "/nowhere/at/all"}, [] {}); });
  CHECK(missing.status == 1);
  CHECK(missing.text.find("opening /nowhere/at/all/rank-0.log") != std::string::npos);
}

TEST_CASE("launch: ranks get one OpenMP thread each, unless OMP_NUM_THREADS is set") {
  const auto threads_in_rank = [](const char* before) {
    return run([&] {
      before != nullptr ? ::setenv("OMP_NUM_THREADS", before, 1) : ::unsetenv("OMP_NUM_THREADS");
      return launch(2, [] { return std::atoi(std::getenv("OMP_NUM_THREADS")) + 10; });
    });
  };
  CHECK(threads_in_rank(nullptr).status == 11);
  CHECK(threads_in_rank("7").status == 17);
}

TEST_CASE("launch: threads that the ranks will lack are told of in one line") {
  const auto text_with = [](int threads) {
    return run([&] {
             std::atomic<bool> may_end{false};
             std::vector<std::thread> others(static_cast<std::size_t>(threads));
             for (auto& one : others) {
               one = std::thread([&] { may_end.wait(false); });
             }
             const int status = launch(2, [] { barrier(); });
             may_end = true;
             may_end.notify_all();
             for (auto& one : others) {
               one.join();
             }
             return status;
           })
        .text;
  };
  CHECK(text_with(0) == "status 0\n");
  const std::string text = text_with(2);
  INFO(text);
  CHECK(text.find("[hfcomm] launch at launch_test.cpp:") == 0);
  CHECK(text.find("this process has 3 threads, and each rank only one") != std::string::npos);
  CHECK(std::count(text.begin(), text.end(), '\n') == 2);
}

TEST_CASE("init: an uncaught error because of another rank is one line that names that rank, and no abort") {
  processes::child_processes children(2, [](int rank) {
    ::dup2(processes::report_pipe(), STDERR_FILENO);
    std::thread([&] {  // outside of the test's handler
      session own = init(processes::job_options(processes::unique_name("uncaught"), rank, 2));
      barrier();
      if (rank == 1) {
        ::raise(SIGKILL);
      }
      barrier();
    })
        .join();
  });
  const auto outcome = children.wait(20s)[0];
  INFO(outcome.output);
  CHECK(outcome.exited_with(1));
  CHECK(std::count(outcome.output.begin(), outcome.output.end(), '\n') == 1);
  CHECK(outcome.output.find("[hfcomm] rank 0/2: barrier #2 at launch_test.cpp:") == 0);
  CHECK(outcome.output.find(": rank 1 (pid ") != std::string::npos);
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
