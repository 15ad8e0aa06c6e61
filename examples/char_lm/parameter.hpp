// SPDX-License-Identifier: MIT
#pragma once

#include <span>
#include <string>

namespace char_lm {

/// One tensor to train: its numbers and, of the same size, their gradients. The spans stay valid as long as the model.
struct parameter {
  std::string name;
  std::span<float> value;
  std::span<float> gradient;
};

}  // namespace char_lm
