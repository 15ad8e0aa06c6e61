// SPDX-License-Identifier: MIT
#pragma once

#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

#include "char_lm/parameter.hpp"

namespace char_lm {

/// Adam's constants. `weight_decay` is decoupled (AdamW): a step takes learning rate * weight_decay of each value away.
struct adam_options {
  double beta1 = 0.9;
  double beta2 = 0.99;
  double epsilon = 1e-8;
  double weight_decay = 0.4;
};

/// The AdamW optimiser. It uses only correctly rounded operations in a fixed order: ranks that run the same binary on
/// equal values and gradients keep bitwise equal values. Not thread-safe.
class adam {
 public:
  /// Keeps the spans, not the parameters' owner, which must outlive this object.
  explicit adam(std::span<const parameter> parameters, adam_options options = {}) : options_(options) {
    for (const auto& p : parameters) {
      parameters_.push_back(
          {p.value, p.gradient, std::vector<float>(p.value.size()), std::vector<float>(p.value.size())});
    }
  }

  /// Moves every value against its gradient. The gradients are read and left as they are.
  void step(double learning_rate) {
    beta1_power_ *= options_.beta1;
    beta2_power_ *= options_.beta2;
    const auto beta1 = static_cast<float>(options_.beta1);
    const auto beta2 = static_cast<float>(options_.beta2);
    const auto epsilon = static_cast<float>(options_.epsilon);
    const auto rate = static_cast<float>(learning_rate / (1.0 - beta1_power_));
    const auto correction = static_cast<float>(1.0 / std::sqrt(1.0 - beta2_power_));
    const auto keep = static_cast<float>(1.0 - learning_rate * options_.weight_decay);
    for (auto& p : parameters_) {
      for (std::size_t i = 0; i < p.value.size(); ++i) {
        const float gradient = p.gradient[i];
        p.mean[i] = beta1 * p.mean[i] + (1.0F - beta1) * gradient;
        p.square[i] = beta2 * p.square[i] + (1.0F - beta2) * gradient * gradient;
        p.value[i] = keep * p.value[i] - rate * p.mean[i] / (std::sqrt(p.square[i]) * correction + epsilon);
      }
    }
  }

 private:
  struct state {
    std::span<float> value;
    std::span<const float> gradient;
    std::vector<float> mean;
    std::vector<float> square;
  };

  adam_options options_;
  std::vector<state> parameters_;
  double beta1_power_ = 1.0;
  double beta2_power_ = 1.0;
};

/// The learning rate at step `step` of `steps` (from 0): rises linearly over the first 2 % to `peak`, then falls
/// linearly, not below a twentieth of it. Straight lines, because a cosine's last bit may differ between machines.
[[nodiscard]] inline double learning_rate_at(std::size_t step, std::size_t steps, double peak) {
  const double warm_up = std::ceil(0.02 * static_cast<double>(steps));
  const auto now = static_cast<double>(step);
  if (now < warm_up)
    return peak * (now + 1.0) / warm_up;
  const double left = (static_cast<double>(steps) - now) / (static_cast<double>(steps) - warm_up + 1.0);
  return peak * std::fmax(left, 0.05);
}

}  // namespace char_lm
