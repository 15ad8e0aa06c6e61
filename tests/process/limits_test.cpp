// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <csignal>

#include "processes.hpp"

// Limits, signals and pauses of a process, and what they must not do.
namespace {

using namespace hfcomm;
using namespace std::chrono_literals;
using processes::unique_name;

std::atomic<bool> interrupts_allocations{false};
std::atomic<long> yields{0};

/// Returns a field of /proc/self/status in bytes.
std::size_t status_bytes(const std::string& field) {
  std::ifstream file("/proc/self/status");
  for (std::string key; file >> key;) {
    if (std::size_t kibibytes = 0; key == field + ':' && file >> kibibytes) {
      return kibibytes << 10;
    }
  }
  return 0;
}

}  // namespace

/// Gives up every other time, as kernels before 6.9 do when a signal comes.
extern "C" int posix_fallocate(int file, off_t offset, off_t bytes) {
  static std::atomic<int> calls{0};
  if (interrupts_allocations.load() && (bytes > off_t{4} << 20 || calls.fetch_add(1) % 2 == 0)) {
    return EINTR;
  }
  return ::fallocate(file, 0, offset, bytes) == 0 ? 0 : errno;
}

/// Counts how often a waiting rank checks while it is awake.
extern "C" int sched_yield() noexcept {
  yields.fetch_add(1);
  return static_cast<int>(::syscall(SYS_sched_yield));
}

namespace {

TEST_CASE("memory: an allocation that signals interrupt is done piece by piece") {
  const std::string name = unique_name("interrupted");
  processes::child_processes children(2, [&](int rank) {
    interrupts_allocations.store(true);
    session own = init(processes::job_options(name, rank, 2));
    const auto half = world().split(0);
    auto values = half.allocate<float>(5'000'000);
    values[0] = 1;
    all_reduce(values, reduce_op::sum, half);
    if (values[0] != 2) {
      throw std::runtime_error("a wrong sum");
    }
  });
  for (const auto& outcome : children.wait(20s)) {
    INFO(outcome.output);
    CHECK(outcome.exited_with(0));
  }
}

TEST_CASE("memory: with mlockall(MCL_FUTURE) a group takes its own memory, and not the room of its heaps") {
  const std::string name = unique_name("locked");
  processes::child_processes children(2, [&](int rank) {
    const rlimit files{300'000'000, 300'000'000};  // bounds the room, should it be populated
    ::setrlimit(RLIMIT_FSIZE, &files);
    if (::mlockall(MCL_FUTURE) != 0 ||
        ::mmap(nullptr, std::size_t{64} << 20, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED) {
      processes::report("skipped");
      return;
    }
    session own = init(processes::job_options(name, rank, 2));
    const std::size_t before = status_bytes("RssShmem");
    const auto half = world().split(0);
    barrier(half);
    auto values = half.allocate<float>(1'000'000);
    all_reduce(values, reduce_op::sum, half);
    const std::size_t taken = status_bytes("RssShmem") - before;
    if (taken > 50'000'000) {
      throw std::runtime_error("a group takes " + std::to_string(taken) + " bytes");
    }
  });
  const auto outcomes = children.wait(20s);
  if (outcomes[0].output.find("skipped") != std::string::npos) {
    std::printf("[hfcomm] skipped: memory: with mlockall(MCL_FUTURE): this process may not lock memory\n");
    return;
  }
  for (const auto& outcome : outcomes) {
    INFO(outcome.output);
    CHECK(outcome.exited_with(0));
  }
}

TEST_CASE("memory: many groups leave the process most of its addresses") {
  const std::string name = unique_name("many-groups");
  processes::child_processes children(2, [&](int rank) {
    rlimit files{};
    ::getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &files);
    const std::size_t before = status_bytes("VmSize");  // a sanitizer maps much for itself
    session own = init(processes::job_options(name, rank, 2));
    std::vector<process_group> groups;
    for (int turn = 0; turn < 800; ++turn) {
      groups.push_back(world().split(0));
    }
    auto values = groups.back().allocate<float>(100'000);
    all_reduce(values, reduce_op::sum, groups.back());
    const std::size_t addresses = status_bytes("VmSize") - before;
    if (addresses > std::size_t{20} << 40) {
      throw std::runtime_error("the process has mapped " + std::to_string(addresses >> 30) + " GiB");
    }
  });
  for (const auto& outcome : children.wait(60s)) {
    INFO(outcome.output);
    CHECK(outcome.exited_with(0));
  }
}

TEST_CASE("deadline: the time for which a whole job is stopped does not count") {
  for (const bool by_message : {false, true}) {
    const std::string name = unique_name("stopped-" + std::to_string(by_message));
    processes::child_processes children(2, [&](int rank) {
      auto options = processes::job_options(name, rank, 2);
      options.timeout = 3s;
      session own = init(options);
      barrier();
      if (rank == 1) {
        std::this_thread::sleep_for(400ms);
      }
      if (by_message) {
        rank == 1 ? send(1, 0) : (void)recv<int>(1);
      } else {
        barrier();
      }
    });
    std::this_thread::sleep_for(200ms);
    for (const int rank : {0, 1}) {
      children.kill(rank, SIGSTOP);
    }
    std::this_thread::sleep_for(4500ms);
    for (const int rank : {0, 1}) {  // the one that waits goes on first
      children.kill(rank, SIGCONT);
      std::this_thread::sleep_for(100ms);
    }
    for (const auto& outcome : children.wait(20s)) {
      INFO(outcome.output);
      CHECK(outcome.exited_with(0));
    }
  }
}

TEST_CASE("waiting: a rank that waits long for a message sleeps, and does not wait awake again and again") {
  const std::string name = unique_name("idle");
  processes::child_processes children(2, [&](int rank) {
    session own = init(processes::job_options(name, rank, 2));
    barrier();
    if (rank == 1) {
      std::this_thread::sleep_for(1s);
      send(1, 0);
      return;
    }
    std::thread observer([] {
      std::this_thread::sleep_for(200ms);
      const long before = yields.load();
      std::this_thread::sleep_for(500ms);
      processes::report("yields " + std::to_string(yields.load() - before));
    });
    (void)recv<int>(1);
    observer.join();
  });
  const auto outcome = children.wait(20s)[0];
  INFO(outcome.output);
  CHECK(outcome.output.find("yields 0\n") != std::string::npos);
}

}  // namespace
