// SPDX-License-Identifier: MIT
#pragma once

#include <cmath>
#include <cstddef>

#include "char_lm/cuda/for_each.hpp"
#include "char_lm/vocabulary.hpp"

// The network's kernels, for for_each_element(): each call makes one element of the result, and adds up whatever it
// adds up in a fixed order, so results do not depend on how the GPU distributes the calls. The maths are those of
// layers.hpp and linear.hpp. All matrices are dense, row-major, one row per example.
namespace char_lm::kernels {

/// Each element.
template <class T>
struct fill {
  T* target;
  T value;

  CHAR_LM_KERNEL void operator()(std::size_t i) const { target[i] = value; }
};

/// Each of the `context` symbols before each position.
struct gather_context {
  const symbol* text;
  const std::size_t* positions;
  std::size_t context;
  symbol* symbols;

  CHAR_LM_KERNEL void operator()(std::size_t i) const {
    symbols[i] = text[positions[i / context] - context + i % context];
  }
};

/// Each number of the embeddings of `symbols`.
struct embed {
  const symbol* symbols;
  const float* embedding;
  std::size_t width;
  float* output;

  CHAR_LM_KERNEL void operator()(std::size_t i) const { output[i] = embedding[symbols[i / width] * width + i % width]; }
};

/// Adds to the gradient of each number of the embedding; `gradient` is that of all embed() made, `places` symbols'.
struct embed_backward {
  const symbol* symbols;
  const float* gradient;
  std::size_t places;
  std::size_t width;
  float* embedding_gradient;

  CHAR_LM_KERNEL void operator()(std::size_t i) const {
    const std::size_t wanted = i / width;
    const float* source = gradient + i % width;
    float sum = embedding_gradient[i];
    for (std::size_t place = 0; place < places; ++place) {
      if (symbols[place] == wanted)
        sum += source[place * width];
    }
    embedding_gradient[i] = sum;
  }
};

/// Each element of input * weight + bias; weight is inner x columns.
struct linear {
  const float* input;
  const float* weight;
  const float* bias;
  std::size_t inner;
  std::size_t columns;
  float* output;

  CHAR_LM_KERNEL void operator()(std::size_t i) const {
    const std::size_t column = i % columns;
    const float* row = input + i / columns * inner;
    float sum = 0.0F;
    for (std::size_t k = 0; k < inner; ++k)
      sum += row[k] * weight[k * columns + column];
    output[i] = bias[column] + sum;
  }
};

/// Adds to the gradient of each column's bias.
struct bias_backward {
  const float* output_gradient;
  std::size_t rows;
  std::size_t columns;
  float* bias_gradient;

  CHAR_LM_KERNEL void operator()(std::size_t column) const {
    float sum = bias_gradient[column];
    for (std::size_t row = 0; row < rows; ++row)
      sum += output_gradient[row * columns + column];
    bias_gradient[column] = sum;
  }
};

/// Adds to the gradient of each weight: transposed input * output gradient.
struct weight_backward {
  const float* input;
  const float* output_gradient;
  std::size_t rows;
  std::size_t inner;
  std::size_t columns;
  float* weight_gradient;

  CHAR_LM_KERNEL void operator()(std::size_t i) const {
    const std::size_t k = i / columns;
    const std::size_t column = i % columns;
    float sum = 0.0F;
    for (std::size_t row = 0; row < rows; ++row)
      sum += input[row * inner + k] * output_gradient[row * columns + column];
    weight_gradient[i] += sum;
  }
};

/// Each element of the input's gradient: output gradient * transposed weight.
struct input_backward {
  const float* output_gradient;
  const float* weight;
  std::size_t inner;
  std::size_t columns;
  float* input_gradient;

  CHAR_LM_KERNEL void operator()(std::size_t i) const {
    const float* gradient = output_gradient + i / inner * columns;
    const float* weights = weight + i % inner * columns;
    float sum = 0.0F;
    for (std::size_t column = 0; column < columns; ++column)
      sum += gradient[column] * weights[column];
    input_gradient[i] = sum;
  }
};

/// Each element of residual + activation(input); without a residual (null) of the activation alone.
struct activate {
  const float* input;
  const float* residual;
  float* output;

  CHAR_LM_KERNEL void operator()(std::size_t i) const {
    const float x = input[i];
    const float y = 0.5F * x * (1.0F + x / std::sqrt(1.0F + x * x));
    output[i] = residual == nullptr ? y : residual[i] + y;
  }
};

/// Each element of `gradient` times the activation's derivative at `input`. The target may be the gradient.
struct activate_backward {
  const float* input;
  const float* gradient;
  float* target;

  CHAR_LM_KERNEL void operator()(std::size_t i) const {
    const float x = input[i];
    const float inverse = 1.0F / std::sqrt(1.0F + x * x);
    const float u = x * inverse;
    target[i] = gradient[i] * (0.5F * (1.0F + u + u * inverse * inverse));
  }
};

/// Each row's mean and 1 / deviation.
struct row_statistics {
  const float* input;
  std::size_t width;
  float* mean;
  float* inverse_deviation;

  CHAR_LM_KERNEL void operator()(std::size_t row) const {
    const float* x = input + row * width;
    float sum = 0.0F;
    for (std::size_t i = 0; i < width; ++i)
      sum += x[i];
    const float middle = sum / static_cast<float>(width);
    float variance = 0.0F;
    for (std::size_t i = 0; i < width; ++i)
      variance += (x[i] - middle) * (x[i] - middle);
    mean[row] = middle;
    inverse_deviation[row] = 1.0F / std::sqrt(variance / static_cast<float>(width) + 1e-5F);
  }
};

/// Each element of the layer norm, before and after scale and shift.
struct normalise {
  const float* input;
  const float* mean;
  const float* inverse_deviation;
  const float* scale;
  const float* shift;
  std::size_t width;
  float* normalised;
  float* output;

  CHAR_LM_KERNEL void operator()(std::size_t i) const {
    const std::size_t row = i / width;
    normalised[i] = (input[i] - mean[row]) * inverse_deviation[row];
    output[i] = scale[i % width] * normalised[i] + shift[i % width];
  }
};

/// Adds to the gradients of each column's shift and scale.
struct scale_backward {
  const float* gradient;
  const float* normalised;
  std::size_t rows;
  std::size_t width;
  float* shift_gradient;
  float* scale_gradient;

  CHAR_LM_KERNEL void operator()(std::size_t column) const {
    float shift = shift_gradient[column];
    float scale = scale_gradient[column];
    for (std::size_t i = column; i < rows * width; i += width) {
      shift += gradient[i];
      scale += gradient[i] * normalised[i];
    }
    shift_gradient[column] = shift;
    scale_gradient[column] = scale;
  }
};

/// For each row what its mean and its deviation absorb of the gradient.
struct absorbed_by_row {
  const float* gradient;
  const float* scale;
  const float* normalised;
  std::size_t width;
  float* mean;
  float* projection;

  CHAR_LM_KERNEL void operator()(std::size_t row) const {
    float sum = 0.0F;
    float product = 0.0F;
    for (std::size_t i = 0; i < width; ++i) {
      const float scaled = gradient[row * width + i] * scale[i];
      sum += scaled;
      product += scaled * normalised[row * width + i];
    }
    mean[row] = sum / static_cast<float>(width);
    projection[row] = product / static_cast<float>(width);
  }
};

/// Adds to each element of the gradient of the layer norm's input.
struct normalise_backward {
  const float* gradient;
  const float* scale;
  const float* normalised;
  const float* inverse_deviation;
  const float* mean;
  const float* projection;
  std::size_t width;
  float* input_gradient;

  CHAR_LM_KERNEL void operator()(std::size_t i) const {
    const std::size_t row = i / width;
    input_gradient[i] +=
        inverse_deviation[row] * (gradient[i] * scale[i % width] - mean[row] - normalised[i] * projection[row]);
  }
};

}  // namespace char_lm::kernels
