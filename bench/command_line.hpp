// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <fstream>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "benchmark.hpp"
#include "pattern.hpp"

namespace bench {

/// An invalid argument of the user; the text says why.
struct bad_argument : std::invalid_argument {
  using std::invalid_argument::invalid_argument;
};

struct settings {
  std::optional<int> processes;
  std::size_t min_bytes = 16;
  std::size_t max_bytes = std::size_t{16} << 20;
  std::size_t factor = 4;
  std::vector<std::size_t> sizes;       ///< From the list, or from the three above.
  std::vector<std::string> operations;  ///< Empty: all.
  std::vector<std::string> types{"float32"};
  effort work;
  std::string json;
  bool bind = false;
  bool help = false;
};

/// Reads the arguments that all benchmark programs share. Throws bad_argument.
class command_line {
 public:
  static constexpr std::string_view types[] = {"float32", "bfloat16", "float64", "int32"};
  static constexpr std::size_t most_bytes = std::size_t{1} << 30;
  static constexpr const char* help =
      "  --min-bytes B      smallest size (16); B may end in K, M or G\n"
      "  --max-bytes B      largest size (16M)\n"
      "  --factor 2|4       from one size to the next (4)\n"
      "  --sizes LIST       these sizes instead, such as 8,1K,16M\n"
      "  --operations LIST  only these, separated by commas\n"
      "  --types LIST       of the reductions: float32 (alone the default), bfloat16, float64, int32\n"
      "  --iterations N     timed iterations (as many as fit into --line-ms, from 20 to 10000)\n"
      "  --warmup N         iterations before (20; 8 from 1 MiB on); all of these are verified\n"
      "  --line-ms N        about how long a line takes (200)\n"
      "  --bind-to-core     bind each rank to a core of its own\n"
      "  --json FILE        write the results there, too\n"
      "  --help             this text\n";

  command_line(int count, char** arguments) : arguments_(arguments + 1, arguments + std::max(count, 1)) {}

  [[nodiscard]] settings parse() {
    settings result;
    while (next_ < arguments_.size()) {
      option_ = arguments_[next_++];
      if (option_ == "--processes") {
        result.processes = number(1, max_processes);
      } else if (option_ == "--min-bytes") {
        result.min_bytes = size(value());
      } else if (option_ == "--max-bytes") {
        result.max_bytes = size(value());
      } else if (option_ == "--factor") {
        result.factor = static_cast<std::size_t>(number(2, 4));
        require(result.factor != 3, "is neither 2 nor 4");
      } else if (option_ == "--sizes") {
        for (const auto& text : list()) {
          result.sizes.push_back(size(text));
        }
      } else if (option_ == "--operations") {
        result.operations = list();
      } else if (option_ == "--types") {
        result.types = list();
        for (const auto& type : result.types) {
          require(std::find(std::begin(types), std::end(types), type) != std::end(types),
                  "knows float32, bfloat16, float64 and int32, not \"" + type + '"');
        }
      } else if (option_ == "--iterations") {
        result.work.iterations = number(1, 10'000'000);
      } else if (option_ == "--warmup") {
        result.work.warmup = number(0, 10'000'000);
      } else if (option_ == "--line-ms") {
        result.work.line_ms = number(1, 3'600'000);
      } else if (option_ == "--json") {
        result.json = value();
        // Checked before a minute of measuring.
        require(static_cast<bool>(std::ofstream(result.json, std::ios::app)), "cannot be written: " + result.json);
      } else if (option_ == "--bind-to-core") {
        result.bind = true;
      } else if (option_ == "--help" || option_ == "-h") {
        result.help = true;
      } else {
        throw bad_argument("unknown argument \"" + option_ + '"');
      }
    }
    if (result.min_bytes > result.max_bytes) {
      throw bad_argument("--min-bytes " + std::to_string(result.min_bytes) + " is more than --max-bytes " +
                         std::to_string(result.max_bytes));
    }
    if (result.sizes.empty()) {
      for (std::size_t bytes = result.min_bytes; bytes <= result.max_bytes; bytes *= result.factor) {
        result.sizes.push_back(bytes);
      }
    }
    return result;
  }

 private:
  void require(bool condition, const std::string& problem) const {
    if (!condition) {
      throw bad_argument(option_ + ' ' + problem);
    }
  }

  [[nodiscard]] std::string value() {
    require(next_ < arguments_.size() && !arguments_[next_].empty(), "needs a value");
    return arguments_[next_++];
  }

  [[nodiscard]] std::vector<std::string> list() {
    std::vector<std::string> words;
    const std::string text = value();
    for (std::size_t begin = 0; begin <= text.size();) {
      const std::size_t end = std::min(text.find(',', begin), text.size());
      require(end > begin, "has an empty entry: \"" + text + '"');
      words.push_back(text.substr(begin, end - begin));
      begin = end + 1;
    }
    return words;
  }

  [[nodiscard]] int number(int least, int most) {
    const std::string text = value();
    int result = 0;
    const auto [stop, problem] = std::from_chars(text.data(), text.data() + text.size(), result);
    require(
        problem == std::errc() && stop == text.data() + text.size() && result >= least && result <= most,
        "needs a whole number from " + std::to_string(least) + " to " + std::to_string(most) + ", not \"" + text + '"');
    return result;
  }

  [[nodiscard]] std::size_t size(const std::string& text) const {
    std::size_t result = 0;
    const char* const end = text.data() + text.size();
    const auto [stop, problem] = std::from_chars(text.data(), end, result);
    const std::string_view unit(stop, static_cast<std::size_t>(end - stop));
    const int shift = unit == "K" || unit == "KiB"   ? 10
                      : unit == "M" || unit == "MiB" ? 20
                      : unit == "G" || unit == "GiB" ? 30
                      : unit.empty() || unit == "B"  ? 0
                                                     : -1;
    require(problem == std::errc() && shift >= 0 && result >= 1 && result <= (most_bytes >> std::max(shift, 0)),
            "needs a size from 1 to 1G, such as 64, 4K or 16M, not \"" + text + '"');
    return result << shift;
  }

  std::vector<std::string> arguments_;
  std::size_t next_ = 0;
  std::string option_;
};

/// The operations that were asked for, in the order of `all`. Throws bad_argument for a name that is none.
[[nodiscard]] inline std::vector<std::string> select_operations(const std::vector<std::string>& wanted,
                                                                const std::vector<std::string>& all) {
  for (const auto& name : wanted) {
    if (std::find(all.begin(), all.end(), name) == all.end()) {
      std::string known;
      for (const auto& other : all) {
        known += (known.empty() ? "" : ", ") + other;
      }
      throw bad_argument("--operations: there is no \"" + name + "\"; there are " + known);
    }
  }
  std::vector<std::string> chosen;
  for (const auto& name : all) {
    if (wanted.empty() || std::find(wanted.begin(), wanted.end(), name) != wanted.end()) {
      chosen.push_back(name);
    }
  }
  return chosen;
}

}  // namespace bench
