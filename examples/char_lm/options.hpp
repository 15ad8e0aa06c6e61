// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <hfcomm/group/launch.hpp>

#include "command_line.hpp"

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

  /// Throws examples::bad_option where the options do not fit together.
  void check() const {
    if (text.empty()) {
      throw examples::bad_option("--text FILE is missing");
    }
    if (batch < accumulate) {
      throw examples::bad_option("--accumulate " + std::to_string(accumulate) +
                                 " needs a --batch of at least as many examples");
    }
  }
};

/// A training program: its name, and which of the options only some have.
struct program {
  const char* name;
  bool has_compare_single = false;

  /// Runs `train(settings)` on each of the ranks that the options ask for. Returns the exit status.
  template <class Train>
  [[nodiscard]] int run(int count, char** arguments, Train train) const {
    settings wanted;
    return options(wanted).run(count, arguments, [&] {
      wanted.check();
      return hfcomm::launch(wanted.processes, [&] { train(wanted); });
    });
  }

  /// Returns the options, which set the members of `wanted`.
  [[nodiscard]] examples::command_line options(settings& wanted) const {
    examples::command_line line(name, " --text FILE");
    line.add("--processes N",
             "ranks to start on this machine (default 1: this process, or what the launcher's variables say)",
             wanted.processes, 1);
    line.add("--text FILE", "what to learn; only rank 0 needs to see it", wanted.text);
    line.add("--steps N", "optimiser steps (default 6000)", wanted.steps, std::size_t{1});
    line.add("--batch N", "examples per step, over all ranks (default 256)", wanted.batch, std::size_t{1});
    line.add("--accumulate K", "split each step's batch into K passes; only the last one communicates (default 1)",
             wanted.accumulate, std::size_t{1});
    line.add("--seed N", "of the initial model and the batches (default 1)", wanted.seed, std::uint64_t{0});
    line.add("--learning-rate X", "peak of the schedule (default 0.003)", wanted.learning_rate, 0.0);
    line.add("--sample N", "characters to generate at the end (default 300)", wanted.sample, std::size_t{0});
    line.add("--temperature X", "of the sample (default 0.7)", wanted.temperature, 0.0);
    if (has_compare_single) {
      line.add("--compare-single", "measure the speed-up over one process, at the end", wanted.compare_single);
    }
    return line;
  }
};

}  // namespace char_lm
