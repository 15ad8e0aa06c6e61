// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

// The parts of the network that are not matrix products. All matrices are dense, row-major, one row per example.
namespace char_lm {

/// The activation x * (1 + x / sqrt(1 + x^2)) / 2: shaped like GELU, but made of correctly rounded operations only, so
/// it is both quick and the same on every machine.
[[nodiscard]] inline float activate(float x) { return 0.5F * x * (1.0F + x / std::sqrt(1.0F + x * x)); }

/// Multiplies `gradients` (with respect to activate(inputs)) with the activation's derivative, in place.
inline void activate_backward(std::span<const float> inputs, std::span<float> gradients) {
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const float x = inputs[i];
    const float inverse = 1.0F / std::sqrt(1.0F + x * x);
    const float u = x * inverse;
    gradients[i] *= 0.5F * (1.0F + u + u * inverse * inverse);
  }
}

/// Values that layer_norm() computed and layer_norm_backward() needs again.
struct norm_record {
  std::vector<float> normalised;         // one row per example: (input - mean) / deviation
  std::vector<float> inverse_deviation;  // one per example
};

/// output = scale * (input - mean) / sqrt(variance + 1e-5) + shift, mean and variance taken over each row.
inline void layer_norm(std::span<const float> input, std::span<const float> scale, std::span<const float> shift,
                       norm_record& record, std::span<float> output) {
  const std::size_t width = scale.size();
  const std::size_t rows = input.size() / width;
  record.normalised.resize(input.size());
  record.inverse_deviation.resize(rows);
  for (std::size_t row = 0; row < rows; ++row) {
    const float* x = input.data() + row * width;
    float* normalised = record.normalised.data() + row * width;
    float* y = output.data() + row * width;
    float mean = 0.0F;
    for (std::size_t i = 0; i < width; ++i)
      mean += x[i];
    mean /= static_cast<float>(width);
    float variance = 0.0F;
    for (std::size_t i = 0; i < width; ++i)
      variance += (x[i] - mean) * (x[i] - mean);
    variance /= static_cast<float>(width);
    const float inverse = 1.0F / std::sqrt(variance + 1e-5F);
    record.inverse_deviation[row] = inverse;
    for (std::size_t i = 0; i < width; ++i) {
      normalised[i] = (x[i] - mean) * inverse;
      y[i] = scale[i] * normalised[i] + shift[i];
    }
  }
}

/// Adds to the gradients of shift, of scale and of the input what `gradient`, that of the output, implies for them.
inline void layer_norm_backward(std::span<const float> gradient, std::span<const float> scale,
                                const norm_record& record, std::span<float> shift_gradient,
                                std::span<float> scale_gradient, std::span<float> input_gradient) {
  const std::size_t width = scale.size();
  const std::size_t rows = gradient.size() / width;
  for (std::size_t row = 0; row < rows; ++row) {
    const float* dy = gradient.data() + row * width;
    const float* normalised = record.normalised.data() + row * width;
    float* dx = input_gradient.data() + row * width;
    float mean = 0.0F;
    float projection = 0.0F;
    for (std::size_t i = 0; i < width; ++i) {
      shift_gradient[i] += dy[i];
      scale_gradient[i] += dy[i] * normalised[i];
      mean += dy[i] * scale[i];
      projection += dy[i] * scale[i] * normalised[i];
    }
    mean /= static_cast<float>(width);
    projection /= static_cast<float>(width);
    // A row's mean and deviation depend on all its elements: what these two would absorb is taken out.
    for (std::size_t i = 0; i < width; ++i) {
      dx[i] += record.inverse_deviation[row] * (dy[i] * scale[i] - mean - normalised[i] * projection);
    }
  }
}

/// Turns a row of logits into probabilities, in place, and returns the logarithm of their normaliser plus the largest
/// logit: the loss of target t is that minus t's logit.
inline float softmax(std::span<float> row) {
  const float largest = *std::max_element(row.begin(), row.end());
  float total = 0.0F;
  for (float& x : row) {
    x = std::exp(x - largest);
    total += x;
  }
  const float inverse = 1.0F / total;
  for (float& x : row)
    x *= inverse;
  return largest + std::log(total);
}

}  // namespace char_lm
