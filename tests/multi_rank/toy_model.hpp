// SPDX-License-Identifier: MIT
#pragma once

#include <doctest/doctest.h>

#include <cstddef>
#include <cstring>
#include <functional>
#include <source_location>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "../tree.hpp"

#include <hfcomm/comm.hpp>
#include <hfcomm/ddp.hpp>

namespace multi_rank {

/// A parameter with memory of its own.
template <class T>
struct toy_parameter {
  toy_parameter(std::string its_name, std::size_t count) : name(std::move(its_name)), value(count), gradient(count) {}

  [[nodiscard]] hfcomm::ddp_parameter view() { return hfcomm::named_parameter(name, value, gradient); }

  std::string name;
  std::vector<T> value;
  std::vector<T> gradient;
};

/// Parameters "p0", "p1", ... of these many floats.
class toy_model {
 public:
  explicit toy_model(const std::vector<std::size_t>& counts) {
    for (std::size_t index = 0; index < counts.size(); ++index) {
      parameters_.emplace_back('p' + std::to_string(index), counts[index]);
    }
  }

  [[nodiscard]] std::vector<hfcomm::ddp_parameter> views() {
    std::vector<hfcomm::ddp_parameter> all;
    for (auto& parameter : parameters_) {
      all.push_back(parameter.view());
    }
    return all;
  }
  [[nodiscard]] std::size_t size() const noexcept { return parameters_.size(); }
  [[nodiscard]] toy_parameter<float>& operator[](std::size_t index) { return parameters_[index]; }

  /// The elements of a parameter repeat after this many.
  static constexpr std::size_t period = 101;

  /// The gradient that rank `rank` computes for element `i` of parameter `index` in pass `pass`. Sums of it need
  /// rounding.
  static float gradient_of(int rank, std::size_t index, std::size_t i, int pass = 0) {
    // Two statements, because a compiler may round one expression once here and twice elsewhere.
    const float common = 0.1F * static_cast<float>((i * 7 + index * 13) % period);
    return common + 1.0F / static_cast<float>(rank + 1 + pass * 3);
  }
  void set_gradient(int rank, std::size_t index, int pass = 0) {
    auto& gradient = parameters_[index].gradient;
    float* const place = gradient.data();
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      place[i] = i < period ? gradient_of(rank, index, i, pass) : place[i - period];
    }
  }
  static float average_of(int ranks, std::size_t index, std::size_t i, int pass) {
    std::vector<float> gradients;
    for (int rank = 0; rank < ranks; ++rank) {
      gradients.push_back(gradient_of(rank, index, i, pass));
    }
    return combine_in_tree(std::span<const float>(gradients), std::plus<>()) / static_cast<float>(ranks);
  }
  /// Whether the gradient is the average over `ranks` ranks, to the bit.
  [[nodiscard]] bool is_average(int ranks, std::size_t index, int pass = 0) const {
    const auto& gradient = parameters_[index].gradient;
    const float* const found = gradient.data();
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      if (found[i] != (i < period ? average_of(ranks, index, i, pass) : found[i - period])) {
        return false;
      }
    }
    return true;
  }

 private:
  std::vector<toy_parameter<float>> parameters_;
};

/// Sets all gradients of a pass, and marks them, the last one first.
inline void mark_all(toy_model& model, hfcomm::distributed_data_parallel& ddp, int rank, int pass) {
  for (std::size_t index = model.size(); index-- > 0;) {
    model.set_gradient(rank, index, pass);
    ddp.mark_ready(index);
  }
}

/// The same; then finishes the pass, and checks the averages.
inline void check_a_pass(toy_model& model, hfcomm::distributed_data_parallel& ddp, const hfcomm::process_group& world,
                         int pass) {
  mark_all(model, ddp, world.rank(), pass);
  ddp.finish();
  for (std::size_t index = 0; index < model.size(); ++index) {
    CHECK(model.is_average(world.size(), index, pass));
  }
}

/// A pass that adds `amount` to every gradient, as backward passes do that accumulate, and marks all.
inline void add_and_finish(toy_model& model, hfcomm::distributed_data_parallel& ddp, float amount,
                           std::source_location where = std::source_location::current()) {
  ddp.begin_forward(where);
  for (std::size_t index = model.size(); index-- > 0;) {
    for (float& element : model[index].gradient) {
      element += amount;
    }
    ddp.mark_ready(index, where);
  }
  ddp.finish(where);
}

}  // namespace multi_rank
