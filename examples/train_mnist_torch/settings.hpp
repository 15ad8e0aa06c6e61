// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <sstream>
#include <string>

namespace mnist {

/// The options of the program.
struct settings {
  std::string data;
  int processes = 1;
  int threads = 0;  // of each rank; 0 divides the machine's cores among its ranks
  std::int64_t epochs = 15;
  std::int64_t batch = 32;
  double rate = 0.05;
  std::uint64_t seed = 1;
  std::string device;
  std::string checkpoint;
  bool resume = false;

  /// Returns those that later epochs depend on.
  std::string of_training() const {
    std::ostringstream text;
    text << "--batch " << batch << " --rate " << rate << " --seed " << seed;
    return text.str();
  }
};

}  // namespace mnist
