// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>

namespace char_lm {

/// Scrambles 64 bits: equal inputs give equal outputs, close inputs unrelated ones (the finaliser of splitmix64).
[[nodiscard]] constexpr std::uint64_t mix(std::uint64_t bits) noexcept {
  bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9U;
  bits = (bits ^ (bits >> 27)) * 0x94d049bb133111ebU;
  return bits ^ (bits >> 31);
}

/// The splitmix64 generator. The standard distributions may differ between standard libraries, so the conversions are
/// here too: one seed gives one sequence everywhere.
class random_source {
 public:
  explicit constexpr random_source(std::uint64_t seed) noexcept : state_(seed) {}

  constexpr std::uint64_t next() noexcept {
    state_ += 0x9e3779b97f4a7c15U;
    return mix(state_);
  }
  /// Uniform in [0, 1), a multiple of 2^-53.
  constexpr double uniform() noexcept { return static_cast<double>(next() >> 11) * 0x1p-53; }
  /// Uniform in [-bound, bound).
  constexpr float uniform(float bound) noexcept { return static_cast<float>(2.0 * uniform() - 1.0) * bound; }
  /// Uniform in [0, count); count from 1 to 2^53.
  constexpr std::size_t below(std::size_t count) noexcept {
    return static_cast<std::size_t>(uniform() * static_cast<double>(count));
  }

 private:
  std::uint64_t state_;
};

}  // namespace char_lm
