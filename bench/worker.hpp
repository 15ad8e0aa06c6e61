// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>

#include <sys/prctl.h>

#include "benchmark.hpp"
#include "coordinator.hpp"
#include "machine.hpp"

namespace bench {

/// The operations that a library has: maps "operation/buffer/type" to a function that makes the benchmark for a size.
using compared_operations = std::map<std::string, std::function<benchmark(std::size_t bytes)>>;

/// One rank of a job of `bench/compare`, which has made the folder $BENCH_JOB:
///   list                                              the operations, one line
///   measure OPERATION BYTES MILLISECONDS WARMUP LEAST "median_us p99_us iterations wrong"
///   quit
/// The last measured operation keeps its buffers until another one is measured.
class worker {
 public:
  /// `bind`: binds the rank to a core of its own if there are enough.
  worker(int rank, int size, bool bind = true)
      : coordinator_(job_folder(), rank, size), others_(coordinator_.others()) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (bind && size <= allowed_cores()) {
      bind_to_core(rank);
    }
  }

  [[nodiscard]] const peers& others() const noexcept { return others_; }

  /// Serves commands until there are no more. Returns the exit status.
  int serve(const std::string& library, const compared_operations& operations) {
    std::string prepared_name;
    std::size_t prepared_bytes = 0;
    std::optional<benchmark> prepared;
    std::uint64_t iteration = 0;
    while (true) {
      std::istringstream command(coordinator_.next_command());
      std::string verb;
      command >> verb;
      if (verb == "quit") {
        return 0;
      }
      if (verb == "list") {
        std::string line = library;
        std::replace_if(line.begin(), line.end(), [](char c) { return c == ':' || c == '\t'; }, ' ');
        line += ':';
        for (const auto& [name, make] : operations) {
          line += ' ' + name;
        }
        coordinator_.answer(line);
      } else if (verb == "drop") {
        prepared.reset();
        coordinator_.answer("dropped");
      } else if (verb == "measure") {
        std::string name;
        std::size_t bytes = 0;
        effort work;
        int warmup = 0;
        command >> name >> bytes >> work.line_ms >> warmup >> work.least_iterations;
        work.warmup = warmup;
        const auto found = operations.find(name);
        if (!command || found == operations.end()) {
          throw std::invalid_argument("cannot measure " + name);
        }
        if (!prepared || prepared_name != name || prepared_bytes != bytes) {
          prepared.reset();
          prepared = found->second(bytes);
          prepared_name = name;
          prepared_bytes = bytes;
        }
        const result one = measurement(*prepared, others_, work, iteration).run();
        iteration += 1'000'000;
        char line[160];
        std::snprintf(line, sizeof(line), "%.6g %.6g %d %llu %zu", one.median_us, one.p99_us, one.iterations,
                      static_cast<unsigned long long>(one.wrong), one.bytes);
        coordinator_.answer(line);
      } else {
        throw std::invalid_argument("unknown command " + verb);
      }
    }
  }

 private:
  static std::string job_folder() {
    const char* folder = std::getenv("BENCH_JOB");
    if (folder == nullptr) {
      throw std::runtime_error("bench/compare starts this program");
    }
    return folder;
  }

  coordinator coordinator_;
  peers others_;
};

}  // namespace bench
