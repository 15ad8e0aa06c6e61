// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <fstream>
#include <functional>
#include <new>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <hfcomm/engine/reduction/vector_unit.hpp>
#include "../sanitizers.hpp"
#include "processes.hpp"
#include "run_well.hpp"

using namespace hfcomm;

namespace {

/// Checks an all_reduce on a shared buffer.
void reduce_shared(std::size_t count) {
  auto data = world().allocate<float>(count);
  for (std::size_t i = 0; i < count; ++i) {
    data[i] = static_cast<float>(i % 100 + static_cast<std::size_t>(rank()));
  }
  all_reduce(data);
  const int n = world_size();
  for (std::size_t i = 0; i < count; ++i) {
    if (data[i] != static_cast<float>(static_cast<int>(i % 100) * n + n * (n - 1) / 2)) {
      throw std::runtime_error("a wrong sum at " + std::to_string(i));
    }
  }
}

/// This process' shared memory, in KiB.
long shared_kib() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    if (word == "RssShmem:") {
      long kib = 0;
      status >> kib;
      return kib;
    }
  }
  return -1;
}

/// Gathers objects of very different lengths, most too long for a slot.
void gather_objects(std::size_t length) {
  const auto text_of = [&](int from) {
    return std::string(length + static_cast<std::size_t>(from), static_cast<char>('a' + from));
  };
  const std::string mine = rank() == 1 ? "short" : text_of(rank());
  const auto all = all_gather(mine);
  for (int from = 0; from < world_size(); ++from) {
    if (all[static_cast<std::size_t>(from)] != (from == 1 ? "short" : text_of(from))) {
      throw std::runtime_error("a wrong text from rank " + std::to_string(from));
    }
  }
}

}  // namespace

TEST_CASE("shared_buffer: processes reduce it in place, and its memory is freed with it") {
  processes::run_well(
      "shared-buffers", 3, [](int) {},
      [] {
        reduce_shared(1'000'000);
        barrier();  // the others have freed theirs, too
        const long before = shared_kib();
        for (int round = 0; round < 5; ++round) {
          reduce_shared(3'000'000);
        }
        barrier();
        // 12 MB for each rank and round, of which nothing is left.
        const auto require_no_more = [before](const std::string& how) {
          if (const long after = shared_kib(); before < 0 || after > before + 4096) {
            throw std::runtime_error(std::to_string(before) + " KiB of shared memory became " + std::to_string(after) +
                                     how);
          }
        };
        require_no_more("");
        // Long objects are read in the same memory, of which a rank keeps 32 MiB.
        gather_objects(1 << 20);
        gather_objects(40'000'000);
        barrier();
        require_no_more(" by way of objects");
        const process_group pair = world().split(rank() / 2);
        auto of_pair = pair.allocate<int>(100'000);
        std::fill(of_pair.begin(), of_pair.end(), 1);
        all_reduce(of_pair, reduce_op::sum, pair);
        if (std::any_of(of_pair.begin(), of_pair.end(), [&](int sum) { return sum != pair.size(); })) {
          throw std::runtime_error("a wrong sum in a part of the world");
        }
      });
}

TEST_CASE("shared_buffer: a process with a limit on memory or file sizes gets buffers of private memory") {
  const auto limit = [](int what, rlim_t value) {
    rlimit limits{};
    ::getrlimit(static_cast<__rlimit_resource_t>(what), &limits);
    limits.rlim_cur = value;
    ::setrlimit(static_cast<__rlimit_resource_t>(what), &limits);
  };
  processes::run_well(
      "small-files", 2, [&](int) { limit(RLIMIT_FSIZE, rlim_t{64} << 20); },
      [] {
        reduce_shared(1'000'000);
        gather_objects(1'000'000);
      });
  if (under_address_sanitizer || under_thread_sanitizer) {
    std::puts("[hfcomm] skipped: shared_buffer: a process with a limit on memory: sanitizers need the address space");
    return;
  }
  processes::run_well(
      "few-addresses", 2, [&](int) { limit(RLIMIT_AS, rlim_t{1} << 30); },
      [] {
        reduce_shared(1'000'000);
        gather_objects(1'000'000);
        try {
          (void)world().allocate<float>(std::size_t{1} << 30);
        } catch (const std::bad_alloc&) {
          return;
        }
        throw std::runtime_error("more memory than there are addresses");
      });
  // If one rank cannot map the heaps, no rank uses them.
  processes::run_well(
      "few-addresses-on-rank-1", 3, [&](int rank) { rank == 1 ? limit(RLIMIT_AS, rlim_t{1} << 30) : void(); },
      [] {
        reduce_shared(1'000'000);
        gather_objects(1'000'000);
        auto data = world().allocate<float>(100'000);
        std::fill(data.begin(), data.end(), static_cast<float>(rank()));
        broadcast(std::span(data.data(), data.size()), 2);
        if (data[0] != 2.0F || data[data.size() - 1] != 2.0F) {
          throw std::runtime_error("a wrong element from rank 2");
        }
      });
}

TEST_CASE("shared_buffer: the child of a fork does not touch its parent's buffers") {
  processes::run_well(
      "fork-with-shared-buffers", 2, [](int) {},
      [] {
        auto data = world().allocate<float>(100'000);
        std::fill(data.begin(), data.end(), 1.0F);
        std::fflush(nullptr);
        if (const pid_t child = ::fork(); child == 0) {
          ::alarm(60);
          bool refused = false;
          try {
            (void)world().allocate<float>(10);
          } catch (const std::bad_alloc&) {
            refused = true;
          }
          data = {};
          ::_exit(refused ? 0 : 1);
        } else {
          int status = 0;
          ::waitpid(child, &status, 0);
          if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
            throw std::runtime_error("the child failed with status " + std::to_string(status));
          }
        }
        all_reduce(data);
        if (std::any_of(data.begin(), data.end(), [](float sum) { return sum != 2.0F; })) {
          throw std::runtime_error("a wrong sum");
        }
      });
}

TEST_CASE("HFCOMM_VECTOR_UNIT: results have the same bits with every vector unit") {
  for (const char* const unit : {"plain", "avx2", "avx512"}) {
    processes::run_well(
        std::string("unit-") + unit, 2, [&](int) { ::setenv("HFCOMM_VECTOR_UNIT", unit, 1); },
        [&] {
          using detail::vector_unit;
          const auto best = detail::best_vector_unit();
          if (std::string(unit) == "plain" ? best != vector_unit::plain
                                           : std::string(unit) == "avx2" && best == vector_unit::avx512) {
            throw std::runtime_error("the limit has no effect");
          }
          reduce_shared(100'000);
        });
  }
}
