// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "benchmark.hpp"
#include "command_line.hpp"
#include "report.hpp"

namespace bench {

[[nodiscard]] inline std::vector<std::string> names_of(const std::vector<operation>& operations) {
  std::vector<std::string> names;
  for (const auto& one : operations) {
    if (names.empty() || names.back() != one.name) {
      names.push_back(one.name);
    }
  }
  return names;
}

/// Measures what was asked for; every rank calls it, rank 0 prints. Returns the exit status: 1 where data was wrong.
inline int run_benchmarks(const std::string& library, const std::vector<operation>& operations, const settings& wanted,
                          const peers& others) {
  report table(library, others.size);
  if (others.rank == 0) {
    table.print_head();
  }
  const auto measure = [&](const benchmark& subject) {
    const result found = measurement(subject, others, wanted.work).run();
    if (others.rank == 0) {
      table.add(found);
    }
  };
  for (const auto& name : select_operations(wanted.operations, names_of(operations))) {
    for (const auto& one : operations) {
      if (one.name != name) {
        continue;
      }
      if (!one.sized) {
        measure(one.make(0));
        continue;
      }
      std::size_t last_bytes = 0;
      for (const std::size_t bytes : wanted.sizes) {
        const benchmark subject = one.make(bytes);
        // Every rank brings one element at least, so several small sizes may come to the same.
        if (subject.bytes != last_bytes) {
          measure(subject);
        }
        last_bytes = subject.bytes;
      }
    }
  }
  if (others.rank != 0) {
    return 0;
  }
  if (!wanted.json.empty()) {
    table.write_json(wanted.json);
  }
  if (table.wrong() != 0) {
    std::fprintf(stderr, "%llu elements were wrong\n", static_cast<unsigned long long>(table.wrong()));
    return 1;
  }
  return 0;
}

}  // namespace bench
