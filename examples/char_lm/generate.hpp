// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "char_lm/model.hpp"
#include "char_lm/random.hpp"
#include "char_lm/vocabulary.hpp"

namespace char_lm {

/// Draws from `probabilities` sharpened (temperature below 1) or flattened (above 1); temperature 0 takes the most
/// probable symbol. Throws std::invalid_argument for a temperature that is negative or not finite.
inline symbol draw(std::span<const float> probabilities, double temperature, random_source& random) {
  if (!(temperature >= 0.0) || !std::isfinite(temperature)) {
    throw std::invalid_argument("the temperature must be 0 or more");
  }
  const auto most_probable = std::max_element(probabilities.begin(), probabilities.end());
  if (temperature == 0.0)
    return static_cast<symbol>(most_probable - probabilities.begin());
  std::vector<double> cumulative;
  double total = 0.0;
  for (const float p : probabilities) {
    // Relative to the most probable, so that a low temperature cannot make every weight vanish.
    total += std::pow(static_cast<double>(p) / static_cast<double>(*most_probable), 1.0 / temperature);
    cumulative.push_back(total);
  }
  const auto drawn = std::upper_bound(cumulative.begin(), cumulative.end(), random.uniform() * total);
  return static_cast<symbol>(
      std::min<std::ptrdiff_t>(drawn - cumulative.begin(), static_cast<std::ptrdiff_t>(probabilities.size()) - 1));
}

/// Continues `prefix` by `count` characters and returns those. A prefix shorter than the context is taken to follow
/// line breaks, or the vocabulary's first symbol where that has none. Throws std::invalid_argument for a prefix with a
/// byte outside the vocabulary, or a temperature that is negative or not finite.
inline std::string generate(model& network, const vocabulary& symbols, std::string_view prefix, std::size_t count,
                            double temperature, random_source& random) {
  std::vector<symbol> history(network.options().context, symbols.contains('\n') ? symbols.encode('\n') : symbol{0});
  const auto encoded = symbols.encode(prefix);
  history.insert(history.end(), encoded.begin(), encoded.end());
  const std::size_t first = history.size();
  for (std::size_t i = 0; i < count; ++i)
    history.push_back(draw(network.predict(history), temperature, random));
  return symbols.decode(std::span(history).subspan(first));
}

}  // namespace char_lm
