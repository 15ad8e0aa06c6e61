// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <csignal>
#include <functional>
#include <optional>

#include <hfcomm/engine/shared_memory/health.hpp>
#include <hfcomm/group/detail/child_processes.hpp>
#include <hfcomm/group/detail/group_state.hpp>

#include "processes.hpp"

// When a rank counts as dead, and when not.
namespace {

using namespace hfcomm;
using namespace std::chrono_literals;
using processes::unique_name;

constexpr int ranks = 3;
constexpr int victim = 1;

std::size_t free_memory() {
  std::ifstream file("/proc/meminfo");
  for (std::string key; file >> key;) {
    if (std::size_t kibibytes = 0; key == "MemAvailable:" && file >> kibibytes) {
      return kibibytes << 10;
    }
  }
  return 0;
}

/// Takes pages, which the system has to free when this process ends.
void hold_memory(std::size_t bytes) {
  void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    throw std::runtime_error("there is no memory to hold");
  }
  ::madvise(memory, bytes, MADV_NOHUGEPAGE);  // they are freed slowly
  for (std::size_t offset = 0; offset < bytes; offset += 4096) {
    static_cast<volatile char*>(memory)[offset] = 1;
  }
}

/// Runs a job in which the victim ends by `end`. The others must name it before it is gone, or within 100 ms.
void check_survivors(const std::function<void()>& prepare, const std::function<void()>& end, const char* told) {
  std::array<int, 2> ready{};
  REQUIRE(::pipe(ready.data()) == 0);
  const std::string name = unique_name("death-" + std::to_string(processes::clock::now().time_since_epoch().count()));
  processes::child_processes children(ranks, [&](int rank) {
    session own = init(processes::job_options(name, rank, ranks));
    if (rank == victim) {
      prepare();
    }
    barrier();
    if (rank == victim) {
      std::this_thread::sleep_for(100ms);
      (void)!::write(ready[1], "r", 1);
      end();
    }
    try {
      barrier();
    } catch (const peer_error& problem) {
      processes::report(problem.what());
    }
  });
  ::close(ready[1]);  // so that a victim that ends early ends the read
  char sign{};
  REQUIRE(::read(ready[0], &sign, 1) == 1);
  const auto died = processes::clock::now();
  const auto outcomes = children.wait(60s);
  ::close(ready[0]);
  const auto milliseconds = [&](int rank) {
    return std::chrono::duration_cast<std::chrono::milliseconds>(outcomes[static_cast<std::size_t>(rank)].ended - died);
  };
  MESSAGE("the others ended after " << std::max(milliseconds(0), milliseconds(2)).count() << " ms, the victim after "
                                    << milliseconds(victim).count() << " ms");
  for (const int rank : {0, 2}) {
    const auto& outcome = outcomes[static_cast<std::size_t>(rank)];
    INFO(outcome.output);
    CHECK(outcome.output.find("rank 1 (pid " + std::to_string(children.pid(victim))) != std::string::npos);
    CHECK(outcome.output.find(told) != std::string::npos);
    CHECK((milliseconds(rank) < 100ms || milliseconds(rank) < milliseconds(victim)));
  }
}

TEST_CASE("death: a rank that is killed is noticed before its memory is freed, 4 GiB of it") {
  constexpr std::size_t bytes = std::size_t{4} << 30;
  if (free_memory() < bytes + bytes / 2) {
    std::printf("[hfcomm] skipped: death: a rank that holds 4 GiB: there are not 6 GiB of free memory\n");
    return;
  }
  check_survivors([] { hold_memory(bytes); }, [] { ::raise(SIGKILL); }, "without a word");
}

/// A folder in which core files are written, if the system writes them as files.
class core_folder {
 public:
  core_folder() : path_(std::filesystem::temp_directory_path() / unique_name("hfcomm-cores")) {
    std::filesystem::create_directories(path_);
  }
  core_folder(const core_folder&) = delete;
  core_folder& operator=(const core_folder&) = delete;
  ~core_folder() { std::filesystem::remove_all(path_); }

  /// Lets this process write a core file here.
  void use() const {
    std::filesystem::current_path(path_);
    const rlimit all{RLIM_INFINITY, RLIM_INFINITY};
    if (::setrlimit(RLIMIT_CORE, &all) != 0) {
      processes::report("no core files are allowed");
    }
  }

  [[nodiscard]] static bool can_be_used() {
    std::ifstream file("/proc/sys/kernel/core_pattern");
    std::string pattern;
    rlimit cores{};
    return file >> pattern && pattern.find_first_of("|/@") == std::string::npos &&
           ::getrlimit(RLIMIT_CORE, &cores) == 0 && cores.rlim_max == RLIM_INFINITY;
  }
  [[nodiscard]] std::uintmax_t bytes() const {
    std::uintmax_t sum = 0;
    for (const auto& entry : std::filesystem::directory_iterator(path_)) {
      sum += entry.file_size();
    }
    return sum;
  }

 private:
  std::filesystem::path path_;
};

constexpr std::size_t core_bytes = std::size_t{512} << 20;

TEST_CASE("death: a rank that crashes is noticed before its core file is written") {
  if (!core_folder::can_be_used()) {
    std::printf("[hfcomm] skipped: death: a rank that writes a core file: the system writes none as plain files\n");
    return;
  }
  const core_folder folder;
  check_survivors(
      [&] {
        folder.use();
        hold_memory(core_bytes);
      },
      [] {
        std::signal(SIGABRT, SIG_DFL);
        std::abort();
      },
      "has crashed; the system may be writing its core file");
  CHECK(folder.bytes() > core_bytes);
}

TEST_CASE("launch: it waits for a core file, and blames the rank that crashed") {
  if (!core_folder::can_be_used()) {
    std::printf("[hfcomm] skipped: launch: it waits for a core file: the system writes none as plain files\n");
    return;
  }
  const core_folder folder;
  const auto outcome = [&] {
    processes::child_processes launcher(1, [&](int) {
      ::dup2(processes::report_pipe(), STDERR_FILENO);
      const auto table = detail::make_exit_records(2);
      const launch_options options{.processes = 2};
      detail::rank_output output(options);
      detail::child_processes children(2, table.get(), output);
      std::array<int, 2> crashing{};
      (void)!::pipe(crashing.data());
      if (children.fork_rank(0)) {
        pid_t crashing_rank = 0;
        (void)!::read(crashing[0], &crashing_rank, sizeof(crashing_rank));
        while (rendezvous::state_of_process(crashing_rank) == rendezvous::process_state::running) {
          std::this_thread::sleep_for(1ms);
        }
        ::_exit(1);  // as a program that catches the error about the other rank, and returns 1
      }
      if (children.fork_rank(1)) {
        folder.use();
        hold_memory(core_bytes);
        std::signal(SIGABRT, SIG_DFL);
        const pid_t self = ::getpid();
        (void)!::write(crashing[1], &self, sizeof(self));
        std::abort();
      }
      processes::report("status " +
                        std::to_string(children.wait(hfcomm::detail::forwarded_signals(), 1ms, std::nullopt)));
    });
    return launcher.wait(60s).front();
  }();
  INFO(outcome.output);
  CHECK(outcome.output.find("status " + std::to_string(128 + SIGABRT)) != std::string::npos);
  CHECK(outcome.output.find("rank 1 (pid ") != std::string::npos);
  CHECK(folder.bytes() > core_bytes);
}

TEST_CASE("death: a rank whose first thread has ended lives") {
  const std::string name = unique_name("alive");
  processes::child_processes children(ranks, [&](int rank) {
    const auto run = [&] {
      session own = init(processes::job_options(name, rank, ranks));
      barrier();
      if (rank == 1) {
        std::this_thread::sleep_for(300ms);  // the others wait, and look whether this rank lives
      }
      for (int turn = 0; turn < 3; ++turn) {
        barrier();
      }
      processes::report("done");
    };
    if (rank != 1) {
      run();
      return;
    }
    std::thread([&] {
      try {
        run();
      } catch (const std::exception& problem) {
        processes::report(problem.what());
      }
      ::_exit(0);
    }).detach();
    ::syscall(SYS_exit, 0);  // the first thread ends, as by pthread_exit in main; the process does not
  });
  for (const auto& outcome : children.wait(20s)) {
    INFO(outcome.output);
    CHECK(outcome.output.find("done") != std::string::npos);
  }
}

TEST_CASE("death: a child that the bare system call has forked does not end its parent's session") {
  const std::string name = unique_name("raw-fork");
  processes::child_processes children(2, [&](int rank) {
    std::optional<session> own(init(processes::job_options(name, rank, 2)));
    barrier();
    if (rank == 1) {
      const auto child = static_cast<pid_t>(::syscall(SYS_fork));
      if (child == 0) {
        own.reset();
        ::_exit(0);
      }
      ::waitpid(child, nullptr, 0);
      std::this_thread::sleep_for(100ms);
    }
    barrier();
    processes::report("done");
  });
  for (const auto& outcome : children.wait(20s)) {
    INFO(outcome.output);
    CHECK(outcome.output.find("done") != std::string::npos);
  }
}

TEST_CASE("death: a process that shares the dead rank's descriptors does not hide its death") {
  const std::string name = unique_name("shared-descriptors");
  std::array<int, 2> ready{};
  REQUIRE(::pipe(ready.data()) == 0);
  processes::child_processes children(2, [&](int rank) {
    session own = init(processes::job_options(name, rank, 2));
    barrier();
    if (rank == 1) {
      if (::syscall(SYS_clone, CLONE_FILES | SIGCHLD, nullptr, nullptr, nullptr, nullptr) == 0) {
        std::this_thread::sleep_for(4s);
        ::_exit(0);
      }
      (void)!::write(ready[1], "r", 1);
      std::this_thread::sleep_for(50ms);
      ::raise(SIGKILL);
    }
    try {
      barrier();
    } catch (const peer_error& problem) {
      processes::report(problem.what());
    }
  });
  ::close(ready[1]);
  char sign{};
  REQUIRE(::read(ready[0], &sign, 1) == 1);
  const auto begin = processes::clock::now();
  const auto outcome = children.wait(20s)[0];
  ::close(ready[0]);
  INFO(outcome.output);
  CHECK(outcome.output.find("rank 1 (pid ") != std::string::npos);
  CHECK(outcome.ended - begin < 2s);
}

TEST_CASE("death: a rank that dies while it records another's loss is the one that all name") {
  const std::string name = unique_name("half-a-record");
  processes::child_processes children(ranks, [&](int rank) {
    session own = init(processes::job_options(name, rank, ranks));
    barrier();
    if (rank == 1) {
      const auto& health =
          dynamic_cast<const engines::shared_memory_health&>(detail::group_access::engine(world()).health());
      health.memory().header().lost.state.store(engines::layout::break_record::written_by(1));
      ::raise(SIGKILL);
    }
    try {
      barrier();
    } catch (const peer_error& problem) {
      processes::report("culprit " + std::to_string(problem.peer()) + ": " + problem.what());
    }
  });
  const auto outcomes = children.wait(20s);
  for (const int rank : {0, 2}) {
    const auto& outcome = outcomes[static_cast<std::size_t>(rank)];
    INFO(outcome.output);
    CHECK(outcome.output.find("culprit 1: ") != std::string::npos);
    CHECK(outcome.output.find("while it reported a lost rank") != std::string::npos);
  }
}

}  // namespace
