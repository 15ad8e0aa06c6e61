// SPDX-License-Identifier: MIT
#pragma once

#include <torch/torch.h>

#include <cstdint>

namespace mnist {

/// The network of PyTorch's MNIST examples: two convolutions, dropout, two fully connected layers. It has padding and
/// smaller kernels, so that images of 8x8 pixels are large enough, too.
struct network : torch::nn::Module {
  network(std::int64_t rows, std::int64_t columns)
      : first(register_module("first", convolution(1, 16))),
        second(register_module("second", convolution(16, 32))),
        dropout(register_module("dropout", torch::nn::Dropout(0.25))),
        hidden(register_module("hidden", torch::nn::Linear(32 * (rows / 4) * (columns / 4), 64))),
        output(register_module("output", torch::nn::Linear(64, 10))) {}

  /// Returns the logarithms of the ten digits' probabilities: [images, 10] for [images, 1, rows, columns].
  torch::Tensor forward(torch::Tensor images) {
    auto x = torch::max_pool2d(torch::relu(first(images)), 2);
    x = torch::max_pool2d(torch::relu(second(x)), 2);
    x = torch::relu(hidden(dropout(x.flatten(1))));
    return torch::log_softmax(output(x), 1);
  }

  static torch::nn::Conv2d convolution(std::int64_t inputs, std::int64_t outputs) {
    return torch::nn::Conv2d(torch::nn::Conv2dOptions(inputs, outputs, 3).padding(1));
  }

  torch::nn::Conv2d first;
  torch::nn::Conv2d second;
  torch::nn::Dropout dropout;
  torch::nn::Linear hidden;
  torch::nn::Linear output;
};

}  // namespace mnist
