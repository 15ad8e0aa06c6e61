// SPDX-License-Identifier: MIT
#pragma once

#include <cstdio>
#include <fstream>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "benchmark.hpp"
#include "machine.hpp"

namespace bench {

/// One rank's view of the table: prints line by line, and keeps the results for the JSON file.
class report {
 public:
  report(std::string library, int processes) : library_(std::move(library)), processes_(processes) {}

  void print_head() const {
    std::printf("# %s, %d process%s, %ld core%s%s, %s, %s\n", library_.c_str(), processes_, processes_ == 1 ? "" : "es",
                start_.cores, start_.cores == 1 ? "" : "s", start_.allowed_cores < start_.cores ? " (bound)" : "",
                start_.cpu.c_str(), start_.compiler.c_str());
    if (!start_.optimized) {
      std::printf("# Built without optimization: these are not the library's figures.\n");
    }
    std::printf(
        "# Time: median over iterations of the slowest rank's. Bytes of gather and all_gather: all ranks' parts.\n");
    std::printf("# %-19s %11s %10s %-18s %11s %9s %9s %6s\n", "operation", "bytes", "count", "type", "time", "algbw",
                "busbw", "wrong");
    std::printf("# %-19s %11s %10s %-18s %11s %9s %9s %6s\n", "", "", "", "", "us", "GB/s", "GB/s", "");
    std::fflush(stdout);
  }

  void add(const result& one) {
    std::printf("  %-19s %11zu %10zu %-18s %11.2f %9.3f %9.3f %6llu\n", one.operation.c_str(), one.bytes, one.count,
                one.type.c_str(), one.median_us, one.algbw_gbs, one.busbw_gbs,
                static_cast<unsigned long long>(one.wrong));
    std::fflush(stdout);
    wrong_ += one.wrong;
    results_.push_back(one);
  }

  [[nodiscard]] std::uint64_t wrong() const noexcept { return wrong_; }

  /// {"header": {...}, "records": [{...}, ...]}, a record a line.
  void write_json(const std::string& path) const {
    const machine end = describe_machine();
    std::ofstream file(path);
    file << "{\"header\": {\"library\": " << quoted(library_) << ", \"date\": " << quoted(start_.date)
         << ", \"cpu\": " << quoted(start_.cpu) << ", \"cores\": " << start_.cores
         << ", \"cores_of_a_rank\": " << start_.allowed_cores << ", \"processes\": " << processes_
         << ",\n  \"compiler\": " << quoted(start_.compiler)
         << ", \"optimized\": " << (start_.optimized ? "true" : "false")
         << ",\n  \"load_before\": " << quoted(start_.load) << ", \"load_after\": " << quoted(end.load)
         << ", \"stolen_seconds\": " << number(end.stolen_seconds - start_.stolen_seconds) << "},\n \"records\": [";
    std::string_view separator = "\n";
    for (const result& one : results_) {
      file << separator << "  {\"operation\": " << quoted(one.operation) << ", \"processes\": " << processes_
           << ", \"type\": " << quoted(one.type) << ", \"bytes\": " << one.bytes << ", \"count\": " << one.count
           << ", \"iterations\": " << one.iterations << ", \"median_us\": " << number(one.median_us)
           << ", \"p99_us\": " << number(one.p99_us) << ", \"algbw_gbs\": " << number(one.algbw_gbs)
           << ", \"busbw_gbs\": " << number(one.busbw_gbs) << ", \"wrong\": " << one.wrong << '}';
      separator = ",\n";
    }
    file << "\n]}\n";
    file.close();
    if (!file) {
      throw std::runtime_error("cannot write " + path);
    }
  }

 private:
  [[nodiscard]] static std::string number(double value) {
    char text[40];
    std::snprintf(text, sizeof(text), "%.6g", value);
    return text;
  }

  [[nodiscard]] static std::string quoted(std::string_view text) {
    std::string all = "\"";
    for (const char c : text) {
      if (c == '"' || c == '\\') {
        all += '\\';
        all += c;
      } else if (static_cast<unsigned char>(c) < 0x20) {
        char escape[8];
        std::snprintf(escape, sizeof(escape), "\\u%04x", static_cast<unsigned>(c));
        all += escape;
      } else {
        all += c;
      }
    }
    return all + '"';
  }

  std::string library_;
  int processes_;
  machine start_ = describe_machine();
  std::vector<result> results_;
  std::uint64_t wrong_ = 0;
};

}  // namespace bench
