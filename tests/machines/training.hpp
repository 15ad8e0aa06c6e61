// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include <hfcomm/comm.hpp>
#include <hfcomm/ddp.hpp>

#include "digest.hpp"

namespace hfcomm::test {

/// A perceptron of two layers that is trained with distributed_data_parallel.
class perceptron {
 public:
  static constexpr std::size_t inputs = 61;
  static constexpr std::size_t hidden = 67;

  explicit perceptron(const process_group& group)
      : ddp_(
            [this] {
              std::vector<ddp_parameter> list;
              for (std::size_t index = 0; index < values_.size(); ++index) {
                list.push_back(
                    named_parameter(std::to_string(index), std::span(values_[index]), std::span(gradients_[index])));
              }
              return list;
            }(),
            {named_buffer("mean", std::span(mean_))}, {.first_bucket_bytes = 1000, .bucket_bytes = 3000}, group) {}

  /// Adds the gradients of the loss of one example, the last layer's first, as a backward pass finds them.
  void backward(const std::vector<float>& example, float wanted, bool is_last) {
    auto& [first, first_bias, second, second_bias] = values_;
    std::vector<float> activations(hidden);
    float result = second_bias[0];
    for (std::size_t row = 0; row < hidden; ++row) {
      float sum = first_bias[row];
      for (std::size_t column = 0; column < inputs; ++column) {
        sum += first[row * inputs + column] * (example[column] - mean_[column]);
      }
      activations[row] = std::tanh(sum);
      result += second[row] * activations[row];
    }
    const float error = result - wanted;
    gradients_[3][0] += error;
    mark(3, is_last);
    for (std::size_t row = 0; row < hidden; ++row) {
      gradients_[2][row] += error * activations[row];
    }
    mark(2, is_last);
    for (std::size_t row = 0; row < hidden; ++row) {
      const float slope = error * second[row] * (1 - activations[row] * activations[row]);
      gradients_[1][row] += slope;
      for (std::size_t column = 0; column < inputs; ++column) {
        gradients_[0][row * inputs + column] += slope * (example[column] - mean_[column]);
      }
    }
    mark(1, is_last);
    mark(0, is_last);
  }

  void step(float rate) {
    for (std::size_t index = 0; index < values_.size(); ++index) {
      for (std::size_t place = 0; place < values_[index].size(); ++place) {
        values_[index][place] -= rate * gradients_[index][place];
        gradients_[index][place] = 0;
      }
    }
  }

  distributed_data_parallel& ddp() { return ddp_; }
  std::vector<float>& mean() { return mean_; }
  [[nodiscard]] const std::array<std::vector<float>, 4>& values() const { return values_; }

 private:
  void mark(std::size_t index, bool is_last) {
    if (is_last) {
      ddp_.mark_ready(index);
    }
  }

  static std::vector<float> small_numbers(std::size_t count, int seed) {
    auto result = numbers<float>(count, seed);
    for (float& value : result) {
      value = std::sin(value) / 8;
    }
    return result;
  }

  std::array<std::vector<float>, 4> values_{small_numbers(hidden * inputs, rank()), small_numbers(hidden, 1),
                                            small_numbers(hidden, 2), small_numbers(1, 3)};
  std::array<std::vector<float>, 4> gradients_{std::vector<float>(hidden * inputs), std::vector<float>(hidden),
                                               std::vector<float>(hidden), std::vector<float>(1)};
  std::vector<float> mean_ = std::vector<float>(inputs);
  distributed_data_parallel ddp_;
};

/// Trains in 40 passes, of which every second one steps, on data of each rank's own; returns a hash of all ranks'
/// parameters.
inline std::uint64_t digest_of_training() {
  perceptron model(world());
  accumulate cycle(model.ddp(), 2);
  for (int pass = 0; pass < 40; ++pass) {
    const auto step = cycle.step();
    model.mean()[as_index(pass)] = 0.01F * static_cast<float>(rank());  // rank 0's counts
    model.ddp().begin_forward();
    for (int example = 0; example < 4; ++example) {
      auto data = numbers<float>(perceptron::inputs, 1000 * rank() + 10 * pass + example);
      for (float& value : data) {
        value = std::cos(value);
      }
      model.backward(data, data[0] * data[1], example == 3);
    }
    model.ddp().finish();
    if (step.synchronizes()) {
      model.step(0.02F);
    }
  }
  digest all;
  for (const auto& values : model.values()) {
    all.add(values);
  }
  digest total;
  total.add(all_gather(all.value()));
  return total.value();
}

}  // namespace hfcomm::test
