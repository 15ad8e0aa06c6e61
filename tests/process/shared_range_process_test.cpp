// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <fstream>
#include <functional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "../sanitizers.hpp"
#include "processes.hpp"
#include "run_well.hpp"

using namespace hfcomm;

namespace {

void require_true(bool condition, const std::string& what) {
  if (!condition) {
    throw std::runtime_error(what);
  }
}

/// A number of KiB in /proc/self/status.
long kib_of(const std::string& field) {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    if (word == field) {
      long kib = 0;
      status >> kib;
      return kib;
    }
  }
  return -1;
}

/// Runs `body` in a child of this process, and waits for it. An exception is an error here.
void run_in_fork(const std::function<void()>& body) {
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);
    try {
      body();
    } catch (const std::exception& problem) {
      processes::report(problem.what());
      ::_exit(1);
    }
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  require_true(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the child failed");
}

bool all_are(std::span<const float> data, float value) {
  return std::all_of(data.begin(), data.end(), [value](float one) { return one == value; });
}

}  // namespace

TEST_CASE("shared_range: processes use the buffer in place, and its memory is freed with it") {
  processes::run_well(
      "shared-ranges", 3, [](int) {},
      [] {
        std::vector<float> data(3'000'001);
        const std::span<float> part = std::span(data).subspan(static_cast<std::size_t>(rank()) + 1, 2'999'990);
        barrier();
        const long before = kib_of("RssShmem:");
        for (int round = 0; round < 5; ++round) {
          std::fill(data.begin(), data.end(), static_cast<float>(rank() + 1));
          const auto shared = share(part);
          require_true(shared.is_shared(), "the buffer is not shared");
          require_true(kib_of("RssShmem:") > before + 11'000, "the buffer is not in shared memory");
          all_reduce(part);
          require_true(all_are(part, 6.0F), "a wrong sum");
          require_true(data[0] == static_cast<float>(rank() + 1), "a wrong neighbour");
          std::fill(part.begin(), part.end(), static_cast<float>(rank()));
          broadcast(part, 2);
          require_true(all_are(part, 2.0F), "a wrong element of rank 2");
        }
        barrier();
        require_true(all_are(part, 2.0F), "a wrong element after all");
        // 12 MB for each rank and round, of which nothing is left.
        const long after = kib_of("RssShmem:");
        require_true(after <= before + 4096,
                     std::to_string(before) + " KiB of shared memory became " + std::to_string(after));
      });
}

TEST_CASE("shared_range: it may outlive the session") {
  const std::string job = processes::unique_name("ranges-survive");
  processes::child_processes children(2, [&](int rank) {
    std::vector<float> data(500'000, 1.0F);
    shared_range shared;
    {
      session own = init(processes::job_options(job, rank, 2));
      shared = share(data);
      all_reduce(data);
    }
    require_true(all_are(data, 2.0F), "a wrong sum");
    data.back() = 3.0F;
    shared = {};
    require_true(data.back() == 3.0F && all_are(std::span(data).first(499'999), 2.0F), "the content is lost");
  });
  for (const auto& outcome : children.wait(std::chrono::seconds(60))) {
    CHECK_MESSAGE(outcome.exited_with(0), outcome.output);
  }
}

TEST_CASE("shared_range: the child of a fork shares the buffer, until it destroys its shared_range") {
  processes::run_well(
      "ranges-and-fork", 2, [](int) {},
      [] {
        std::vector<float> data(100'000, 1.0F);
        std::vector<float> other(100'000, 1.0F);
        auto shared = share(data);
        run_in_fork([&] {
          require_true(all_are(data, 1.0F), "the child has another content");
          std::fill(data.begin(), data.end(), 5.0F);
        });
        require_true(std::count(data.begin(), data.end(), 5.0F) > 98'000,
                     "the parent does not see what the child wrote");
        std::fill(data.begin(), data.end(), 1.0F);
        run_in_fork([&] {
          shared = {};
          require_true(all_are(data, 1.0F), "the child's copy has another content");
          std::fill(data.begin(), data.end(), 6.0F);
          bool refused = false;
          try {
            (void)share(other);
          } catch (const usage_error& problem) {
            refused = std::string(problem.what()).find("before a fork") != std::string::npos;
          }
          require_true(refused, "the child may share a buffer");
        });
        require_true(all_are(data, 1.0F), "the parent sees what the child wrote to its copy");
        all_reduce(data);
        require_true(all_are(data, 2.0F), "a wrong sum");
        shared = {};
        require_true(all_are(data, 2.0F), "the content is lost");
        const auto again = share(other);  // in the memory that the first one had
        all_reduce(other);
        require_true(all_are(other, 2.0F), "a wrong sum in the other buffer");
      });
}

TEST_CASE("shared_range: a range with a hole, or on the stack, cannot be shared") {
  processes::run_well(
      "ranges-with-holes", 2, [](int) {},
      [] {
        const auto refuses = [](std::span<std::byte> range, const std::string& why) {
          std::string problem;
          try {
            (void)share(range);
          } catch (const engine_error& found) {
            problem = found.what();
          }
          require_true(problem.find(why) != std::string::npos, "share: " + problem);
        };
        const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
        void* const place = ::mmap(nullptr, 9 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        const std::span memory(static_cast<std::byte*>(place), 9 * page);
        ::munmap(memory.data() + 8 * page, page);
        ::munmap(memory.data() + 3 * page, page);
        refuses(memory, "not all of it is mapped");
        refuses(memory.first(8 * page), "not all of it is mapped");
        refuses(memory.subspan(3 * page, page), "not all of it is mapped");
        refuses(memory.last(2 * page), "not all of it is mapped");
        require_true(share(memory.first(3 * page)).is_shared(), "what is before the hole is not shared");
        std::byte local[std::size_t{256} << 10];
        refuses(local, "it is on the stack");
      });
}

TEST_CASE("shared_range: locks of the memory are lost, and core files contain it") {
  if (under_address_sanitizer || under_thread_sanitizer) {
    std::puts("[hfcomm] skipped: shared_range: locks of the memory are lost: sanitizers ignore mlock");
    return;
  }
  processes::run_well(
      "ranges-and-locks", 2, [](int) {},
      [] {
        std::vector<float> data(150'000, 1.0F);
        require_true(::mlock(data.data(), data.size() * sizeof(float)) == 0, "the buffer cannot be locked");
        const long locked = kib_of("VmLck:");
        auto shared = share(data);
        const long left = kib_of("VmLck:");
        require_true(left >= 0 && left < locked - 500,
                     std::to_string(locked) + " KiB locked, then " + std::to_string(left));
        std::ifstream maps("/proc/self/smaps");
        char begin[20];
        std::snprintf(begin, sizeof(begin), "%zx-", (reinterpret_cast<std::size_t>(data.data()) + 4095) / 4096 * 4096);
        std::string line;
        while (std::getline(maps, line) && line.rfind(begin, 0) != 0) {
        }
        while (std::getline(maps, line) && line.rfind("VmFlags:", 0) != 0) {
        }
        require_true(!line.empty() && line.find(" dd") == std::string::npos, "core files do not contain it: " + line);
        require_true(line.find(" sh") != std::string::npos, "these are not the buffer's pages: " + line);
        require_true(::mlock(data.data(), data.size() * sizeof(float)) == 0, "the shared buffer cannot be locked");
        shared = {};
        require_true(all_are(data, 1.0F), "the content is lost");
        require_true(kib_of("VmLck:") < locked - 500, "the private memory is locked");
      });
}

TEST_CASE("shared_range: a process without memory for it gets an engine_error, and can still reduce") {
  if (under_address_sanitizer || under_thread_sanitizer) {
    std::puts("[hfcomm] skipped: shared_range: a process without memory for it: sanitizers need the address space");
    return;
  }
  const auto limit_addresses = [](rlim_t bytes) {
    rlimit limits{};
    ::getrlimit(RLIMIT_AS, &limits);
    limits.rlim_cur = bytes;
    ::setrlimit(RLIMIT_AS, &limits);
  };
  const auto reduce_ones = [](bool expects_error, const std::string& why) {
    std::vector<float> data(1'000'000, 1.0F);
    std::string problem;
    shared_range shared;
    try {
      shared = share(data);
    } catch (const engine_error& found) {
      problem = found.what();
    }
    require_true(expects_error == !problem.empty() && problem.find(why) != std::string::npos, "share: " + problem);
    all_reduce(data);
    require_true(all_are(data, static_cast<float>(world_size())), "a wrong sum");
    shared = {};
    require_true(all_are(data, static_cast<float>(world_size())), "the content is lost");
  };
  // No room for heaps.
  processes::run_well(
      "ranges-small", 2,
      [&](int) {
        rlimit limits{};
        ::getrlimit(RLIMIT_FSIZE, &limits);
        limits.rlim_cur = rlim_t{4} << 20;
        ::setrlimit(RLIMIT_FSIZE, &limits);
      },
      [&] { reduce_ones(true, ""); });
  // One rank cannot map the heaps, so no rank uses what is in them.
  processes::run_well(
      "ranges-of-one", 3, [&](int rank) { rank == 1 ? limit_addresses(rlim_t{1} << 30) : void(); },
      [&] { reduce_ones(rank() == 1, rank() == 1 ? "the group has no memory for it" : ""); });
  // No addresses for the second mapping: everything stays as it is.
  processes::run_well(
      "ranges-full", 2, [](int) {},
      [&] {
        std::vector<float> data(10'000'000, 1.0F);
        limit_addresses(static_cast<rlim_t>(kib_of("VmSize:") + 20'000) << 10);
        std::string problem;
        try {
          (void)share(data);
        } catch (const engine_error& found) {
          problem = found.what();
        }
        require_true(problem.find("mapping shared memory there: Cannot allocate memory") != std::string::npos, problem);
        require_true(all_are(data, 1.0F), "the content is lost");
        limit_addresses(RLIM_INFINITY);
        auto shared = share(data);
        // No addresses for private pages: the buffer keeps the shared ones, as ordinary memory.
        limit_addresses(static_cast<rlim_t>(kib_of("VmSize:") + 20'000) << 10);
        shared = {};
        limit_addresses(RLIM_INFINITY);
        require_true(all_are(data, 1.0F), "the content is lost at the end");
        all_reduce(data);
        require_true(all_are(data, 2.0F), "a wrong sum");
        // It is shared memory still, which its group does not give to others.
        std::vector<float> other(10'000'000, 3.0F);
        const auto next = share(other);
        all_reduce(other);
        require_true(all_are(data, 2.0F), "another buffer has the memory");
      });
}
