// SPDX-License-Identifier: MIT
#pragma once

#include <cmath>
#include <cstddef>

#include "char_lm/cuda/for_each.hpp"
#include "char_lm/vocabulary.hpp"

// The kernels between logits and loss, and the optimiser's: see kernels.hpp.
namespace char_lm::kernels {

/// Turns each row of logits into probabilities, in place, and says the row's loss.
struct cross_entropy {
  const symbol* text;
  const std::size_t* positions;
  std::size_t symbols;
  float* logits;
  float* losses;

  CHAR_LM_KERNEL void operator()(std::size_t row) const {
    float* x = logits + row * symbols;
    const float target = x[text[positions[row]]];
    float largest = x[0];
    for (std::size_t i = 1; i < symbols; ++i)
      largest = x[i] > largest ? x[i] : largest;
    float total = 0.0F;
    for (std::size_t i = 0; i < symbols; ++i) {
      x[i] = std::exp(x[i] - largest);
      total += x[i];
    }
    const float inverse = 1.0F / total;
    for (std::size_t i = 0; i < symbols; ++i)
      x[i] *= inverse;
    losses[row] = largest + std::log(total) - target;
  }
};

/// Turns each probability into `scale` times the gradient of the losses' sum with respect to its logit.
struct cross_entropy_backward {
  const symbol* text;
  const std::size_t* positions;
  std::size_t symbols;
  float scale;
  float* probabilities;

  CHAR_LM_KERNEL void operator()(std::size_t i) const {
    const float hit = text[positions[i / symbols]] == i % symbols ? 1.0F : 0.0F;
    probabilities[i] = (probabilities[i] - hit) * scale;
  }
};

/// Adds `weight` times the rows' mean loss to a number; for one element.
struct add_mean {
  const float* losses;
  std::size_t rows;
  double weight;
  double* sum;

  CHAR_LM_KERNEL void operator()(std::size_t /*always 0*/) const {
    double total = 0.0;
    for (std::size_t row = 0; row < rows; ++row)
      total += static_cast<double>(losses[row]);
    *sum += weight * (total / static_cast<double>(rows));
  }
};

/// A step of AdamW for each value.
struct adam_step {
  float beta1;
  float beta2;
  float epsilon;
  float rate;
  float correction;
  float keep;
  const float* gradients;
  float* means;
  float* squares;
  float* values;

  CHAR_LM_KERNEL void operator()(std::size_t i) const {
    const float gradient = gradients[i];
    means[i] = beta1 * means[i] + (1.0F - beta1) * gradient;
    squares[i] = beta2 * squares[i] + (1.0F - beta2) * gradient * gradient;
    values[i] = keep * values[i] - rate * means[i] / (std::sqrt(squares[i]) * correction + epsilon);
  }
};

}  // namespace char_lm::kernels
