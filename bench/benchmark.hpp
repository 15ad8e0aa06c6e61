// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace bench {

/// The functions with which a measurement reaches the other ranks. The measured library may provide them.
struct peers {
  int rank = 0;
  int size = 1;
  std::function<void()> barrier;
  std::function<void(std::span<double>)> maximum;  ///< Element by element over the ranks, in place, on every rank.
};

/// One line of the table: an operation on data of one type and size, with everything it needs.
struct benchmark {
  std::string operation;
  std::string type;
  std::size_t bytes = 0;    ///< As nccl-tests counts: in gather and all_gather, those of all ranks' parts.
  std::size_t count = 0;    ///< Elements that one rank contributes.
  double bus_factor = 1.0;  ///< busbw / algbw
  std::function<void(std::uint64_t)> prepare;             ///< Writes the iteration's input and drops old results.
  std::function<void(std::uint64_t)> run;                 ///< The timed part.
  std::function<std::size_t(std::uint64_t)> count_wrong;  ///< Elements of the iteration's result that are wrong here.
};

/// An operation on one type: a benchmark for each size, or just one where the operation has no size. Made one by one,
/// since each holds its buffers.
struct operation {
  std::string name;
  bool sized = true;
  std::function<benchmark(std::size_t bytes)> make;
};

/// Result of a benchmark; times in microseconds. An iteration's time is that of its slowest rank.
struct result {
  std::string operation;
  std::string type;
  std::size_t bytes = 0;
  std::size_t count = 0;
  int iterations = 0;
  double median_us = 0;
  double p99_us = 0;
  double algbw_gbs = 0;
  double busbw_gbs = 0;
  std::uint64_t wrong = 0;
};

struct effort {
  std::optional<int> iterations;  ///< Otherwise as many as fit into `line_ms`.
  std::optional<int> warmup;      ///< Otherwise by size.
  int line_ms = 200;
  int least_iterations = 20;  ///< Even where they do not fit.
};

/// Inputs and outputs are rotated: one buffer, always in the cache, would flatter small and medium sizes.
inline constexpr std::size_t buffer_count = 4;

/// The smallest value that is not below `share` of all.
[[nodiscard]] inline double quantile(std::vector<double> values, double share) {
  if (values.empty()) {
    return 0;
  }
  const auto place = static_cast<std::size_t>(share * static_cast<double>(values.size() - 1) + 0.5);
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(place), values.end());
  return values[place];
}

/// Measures on every rank at once; every rank gets the same result.
class measurement {
 public:
  /// `first` is the number of the first iteration, on which its data depend.
  measurement(const benchmark& subject, const peers& others, const effort& effort, std::uint64_t first = 0)
      : subject_(subject), others_(others), effort_(effort), iteration_(first) {}

  [[nodiscard]] result run() {
    warm_up();
    const int iterations = effort_.iterations.value_or(affordable_iterations());
    // Checking a large result takes longer than making it.
    const int check_every = std::max(iterations / (subject_.bytes < large ? 10 : 2), 1);
    std::vector<double> times;
    times.reserve(static_cast<std::size_t>(iterations));
    for (int index = 0; index < iterations; ++index) {
      times.push_back(one_iteration());
      if (index % check_every == 0 || index + 1 == iterations) {
        check();
      }
    }
    others_.maximum(times);

    result found{subject_.operation, subject_.type, subject_.bytes, subject_.count, iterations};
    found.median_us = quantile(times, 0.5);
    found.p99_us = quantile(times, 0.99);
    found.algbw_gbs = found.median_us > 0 ? static_cast<double>(subject_.bytes) / found.median_us * 1e-3 : 0;
    found.busbw_gbs = found.algbw_gbs * subject_.bus_factor;
    found.wrong = total_wrong();
    return found;
  }

 private:
  using clock = std::chrono::steady_clock;
  static constexpr int most_iterations = 10'000;
  static constexpr std::size_t large = 1 << 20;

  [[nodiscard]] static double microseconds(clock::duration time) {
    return std::chrono::duration<double, std::micro>(time).count();
  }

  double one_iteration() {
    subject_.prepare(iteration_);
    // Ranks need different times to write their inputs, so a rank may fall asleep in the first barrier. Behind the
    // second one all are awake, and no wake-up counts as the operation's time.
    others_.barrier();
    others_.barrier();
    const auto start = clock::now();
    subject_.run(iteration_);
    const auto end = clock::now();
    // Where ranks share a core, one that has finished must not take it from one that has not, for its next input.
    others_.barrier();
    ++iteration_;
    return microseconds(end - start);
  }

  void check() { wrong_ += subject_.count_wrong(iteration_ - 1); }

  void warm_up() {
    const int rounds = effort_.warmup.value_or(subject_.bytes < large ? 20 : 2 * static_cast<int>(buffer_count));
    std::vector<double> cycles;
    for (int round = 0; round < rounds; ++round) {
      const auto start = clock::now();
      one_iteration();
      cycles.push_back(microseconds(clock::now() - start));
      if (subject_.bytes < large || round + 1 == rounds) {
        check();
      }
    }
    cycle_us_ = quantile(std::move(cycles), 0.5);
  }

  /// The ranks must agree, so the slowest one's time decides.
  [[nodiscard]] int affordable_iterations() const {
    double cycle = cycle_us_;
    others_.maximum(std::span(&cycle, 1));
    if (cycle <= 0) {
      return effort_.least_iterations;
    }
    return static_cast<int>(std::clamp(effort_.line_ms * 1000.0 / cycle, static_cast<double>(effort_.least_iterations),
                                       static_cast<double>(most_iterations)));
  }

  /// Over all ranks. There is no sum among `peers`: each rank's number goes to its own place of a maximum.
  [[nodiscard]] std::uint64_t total_wrong() const {
    std::vector<double> counts(static_cast<std::size_t>(others_.size), 0.0);
    counts[static_cast<std::size_t>(others_.rank)] = static_cast<double>(wrong_);
    others_.maximum(counts);
    double sum = 0;
    for (const double count : counts) {
      sum += count;
    }
    return static_cast<std::uint64_t>(sum);
  }

  const benchmark& subject_;
  const peers& others_;
  const effort& effort_;
  std::uint64_t iteration_;
  double cycle_us_ = 0;
  std::uint64_t wrong_ = 0;
};

}  // namespace bench
