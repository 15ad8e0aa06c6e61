// SPDX-License-Identifier: MIT
#pragma once

#include <cmath>
#include <stdexcept>

#include <hfcomm/core/device_span.hpp>
#include <hfcomm/core/stream_ref.hpp>
#include <hfcomm/cuda/device_buffer.hpp>

#include "char_lm/adam.hpp"
#include "char_lm/cuda/for_each.hpp"
#include "char_lm/cuda/kernels.hpp"
#include "char_lm/cuda/loss_kernels.hpp"

namespace char_lm {

/// The AdamW optimiser over values in device memory: see adam. Ranks on GPUs of one kind that run the same binary on
/// equal values and gradients keep bitwise equal values. Everything goes on the stream; nothing waits.
class device_adam {
 public:
  /// Keeps the spans, not the memory's owner, which must outlive this object. Throws std::invalid_argument where they
  /// differ in size.
  device_adam(hfcomm::device_span<float> values, hfcomm::device_span<const float> gradients, hfcomm::stream_ref stream,
              adam_options options = {})
      : options_(options),
        stream_(stream),
        values_(values),
        gradients_(gradients),
        means_(values.size()),
        squares_(values.size()) {
    if (values.size() != gradients.size())
      throw std::invalid_argument("an optimiser needs as many gradients as values");
    for (auto* state : {&means_, &squares_})
      for_each_element(state->size(), stream_, kernels::fill<float>{state->data(), 0.0F});
  }

  /// Moves every value against its gradient. The gradients are read and left as they are.
  void step(double learning_rate) {
    beta1_power_ *= options_.beta1;
    beta2_power_ *= options_.beta2;
    for_each_element(values_.size(), stream_,
                     kernels::adam_step{
                         .beta1 = static_cast<float>(options_.beta1),
                         .beta2 = static_cast<float>(options_.beta2),
                         .epsilon = static_cast<float>(options_.epsilon),
                         .rate = static_cast<float>(learning_rate / (1.0 - beta1_power_)),
                         .correction = static_cast<float>(1.0 / std::sqrt(1.0 - beta2_power_)),
                         .keep = static_cast<float>(1.0 - learning_rate * options_.weight_decay),
                         .gradients = gradients_.data(),
                         .means = means_.data(),
                         .squares = squares_.data(),
                         .values = values_.data(),
                     });
  }

 private:
  adam_options options_;
  hfcomm::stream_ref stream_;
  hfcomm::device_span<float> values_;
  hfcomm::device_span<const float> gradients_;
  hfcomm::device_buffer<float> means_;
  hfcomm::device_buffer<float> squares_;
  double beta1_power_ = 1.0;
  double beta2_power_ = 1.0;
};

}  // namespace char_lm
