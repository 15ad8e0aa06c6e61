// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>

#include <unistd.h>

namespace char_lm {

using clock_type = std::chrono::steady_clock;

[[nodiscard]] inline double seconds_since(clock_type::time_point start) {
  return std::chrono::duration<double>(clock_type::now() - start).count();
}

/// The line that tells how far training is: rewritten on a terminal, printed now and then elsewhere.
class progress_line {
 public:
  progress_line(std::size_t steps, double characters_per_step)
      : steps_(steps), characters_per_step_(characters_per_step), terminal_(::isatty(STDOUT_FILENO) != 0) {}

  [[nodiscard]] bool due(std::size_t step) const { return step + 1 == steps_ || (step + 1) % interval() == 0; }

  void show(std::size_t step, double loss) const {
    const double elapsed = seconds_since(start_);
    const double per_step = elapsed / static_cast<double>(step + 1);
    std::printf("%sstep %zu/%zu  loss %.3f  %.0f characters/s  %.0f s left%s", terminal_ ? "\r" : "", step + 1, steps_,
                loss, characters_per_step_ / per_step, per_step * static_cast<double>(steps_ - step - 1),
                terminal_ && step + 1 < steps_ ? "   " : "   \n");
    std::fflush(stdout);
  }

 private:
  [[nodiscard]] std::size_t interval() const { return std::max<std::size_t>(1, terminal_ ? 10 : steps_ / 10); }

  std::size_t steps_;
  double characters_per_step_;
  bool terminal_;
  clock_type::time_point start_ = clock_type::now();
};

}  // namespace char_lm
