// SPDX-License-Identifier: MIT
#pragma once

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>

#include <hfcomm/group/launch.hpp>

namespace char_lm {

/// The options of a training program.
struct settings {
  int processes = 1;
  std::string text;
  std::size_t steps = 6000;
  std::size_t batch = 256;
  std::size_t accumulate = 1;
  std::uint64_t seed = 1;
  double learning_rate = 0.003;
  std::size_t sample = 300;
  double temperature = 0.7;
  bool compare_single = false;
};

struct bad_option : std::invalid_argument {
  using std::invalid_argument::invalid_argument;
};

/// A training program: its name, and which of the options only some have.
struct program {
  const char* name;
  bool has_compare_single = false;

  /// Runs `train(settings)` on each of the ranks that the options ask for. Returns the exit status.
  template <class Train>
  [[nodiscard]] int run(int count, char** arguments, Train train) const {
    try {
      const settings wanted = parse(count, arguments);
      return hfcomm::launch(wanted.processes, [&] { train(wanted); });
    } catch (const bad_option& problem) {
      std::fprintf(stderr, "%s: %s\n%s", name, problem.what(), usage().c_str());
      return 2;
    } catch (const std::exception& problem) {
      std::fprintf(stderr, "%s: %s\n", name, problem.what());
      return 1;
    }
  }

  [[nodiscard]] std::string usage() const {
    return std::string("usage: ") + name +
           " --text FILE [options]\n"
           "  --processes N       ranks to start on this machine (default 1: this process, or what the launcher's "
           "variables say)\n"
           "  --text FILE         what to learn; only rank 0 needs to see it\n"
           "  --steps N           optimiser steps (default 6000)\n"
           "  --batch N           examples per step, over all ranks (default 256)\n"
           "  --accumulate K      split each step's batch into K passes; only the last one communicates (default 1)\n"
           "  --seed N            of the initial model and the batches (default 1)\n"
           "  --learning-rate X   peak of the schedule (default 0.003)\n"
           "  --sample N          characters to generate at the end (default 300)\n"
           "  --temperature X     of the sample (default 0.7)\n" +
           (has_compare_single ? "  --compare-single    measure the speed-up over one process, at the end\n" : "");
  }

  /// Throws bad_option. `--help` says the usage and ends the process.
  [[nodiscard]] settings parse(int count, char** arguments) const {
    settings result;
    for (int index = 1; index < count; ++index) {
      const std::string_view option = arguments[index];
      if (option == "--help" || option == "-h") {
        std::fputs(usage().c_str(), stdout);
        std::exit(0);
      }
      if (has_compare_single && option == "--compare-single") {
        result.compare_single = true;
        continue;
      }
      if (index + 1 == count)
        throw bad_option("unknown option or missing value: " + std::string(option));
      take(result, option, arguments[++index]);
    }
    if (result.text.empty())
      throw bad_option("--text FILE is missing");
    if (result.batch < result.accumulate) {
      throw bad_option("--accumulate " + std::to_string(result.accumulate) +
                       " needs a --batch of at least as many examples");
    }
    return result;
  }

 private:
  static void take(settings& result, std::string_view option, std::string_view value) {
    if (option == "--processes") {
      result.processes = number(option, value, 1);
    } else if (option == "--text") {
      result.text = value;
    } else if (option == "--steps") {
      result.steps = number<std::size_t>(option, value, 1);
    } else if (option == "--batch") {
      result.batch = number<std::size_t>(option, value, 1);
    } else if (option == "--accumulate") {
      result.accumulate = number<std::size_t>(option, value, 1);
    } else if (option == "--seed") {
      result.seed = number<std::uint64_t>(option, value, 0);
    } else if (option == "--learning-rate") {
      result.learning_rate = number(option, value, 0.0);
    } else if (option == "--sample") {
      result.sample = number<std::size_t>(option, value, 0);
    } else if (option == "--temperature") {
      result.temperature = number(option, value, 0.0);
    } else {
      throw bad_option("unknown option: " + std::string(option));
    }
  }

  template <class T>
  static T number(std::string_view option, std::string_view text, T minimum) {
    T value{};
    const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (problem != std::errc() || end != text.data() + text.size() || value < minimum) {
      throw bad_option(std::string(option) + " wants a number of at least " + std::to_string(minimum) + ", not \"" +
                       std::string(text) + '"');
    }
    return value;
  }
};

}  // namespace char_lm
