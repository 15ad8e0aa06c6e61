// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "char_lm/cuda/for_each.hpp"
#include "char_lm/model.hpp"
#include "char_lm/random.hpp"
#include "device_ranks.hpp"

/// Helpers of the tests of the CUDA example's character model. Its kernels are functions here, which the
/// double of CUDA runs on the host in the order of their streams.
namespace device_ranks {

inline const bool char_lm_has_kernels = [] {
  char_lm::kernels_on_host() = [](stream_ref stream, std::function<void()> work) {
    fake_cuda::launch(stream.get(), std::move(work));
  };
  return true;
}();

inline constexpr std::size_t odd_vocabulary = 7;

inline const std::vector<char_lm::symbol>& odd_text() {
  static const std::vector<char_lm::symbol> text = [] {
    char_lm::random_source random(5);
    std::vector<char_lm::symbol> made(60);
    for (auto& s : made)
      s = static_cast<char_lm::symbol>(random.below(odd_vocabulary));
    return made;
  }();
  return text;
}

/// The largest difference, in parts of the largest number.
inline double distance(const std::vector<float>& found, std::span<const float> expected) {
  REQUIRE(found.size() == expected.size());
  double largest = 0.0;
  double worst = 0.0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    REQUIRE(std::isfinite(found[i]));
    largest = std::max(largest, std::fabs(static_cast<double>(expected[i])));
    worst = std::max(worst, std::fabs(static_cast<double>(found[i]) - static_cast<double>(expected[i])));
  }
  return largest == 0.0 ? worst : worst / largest;
}

inline std::vector<float> values_of(const char_lm::model& network) {
  std::vector<float> all;
  for (const auto& p : network.parameters())
    all.insert(all.end(), p.value.begin(), p.value.end());
  return all;
}

}  // namespace device_ranks
