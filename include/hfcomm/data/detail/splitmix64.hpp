// SPDX-License-Identifier: MIT
#pragma once

#include <bit>
#include <cstdint>

namespace hfcomm::detail {

/// SplitMix64: random numbers that are the same on every platform and with every standard library. Number i is a hash
/// of the sum of the key and i times a constant.
class splitmix64 {
 public:
  constexpr explicit splitmix64(std::uint64_t key) noexcept : state_(key) {}

  /// Returns a hash of `bits`, by its finalizer.
  static constexpr std::uint64_t hash(std::uint64_t bits) noexcept {
    bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9U;
    bits = (bits ^ (bits >> 27)) * 0x94d049bb133111ebU;
    return bits ^ (bits >> 31);
  }

  constexpr std::uint64_t next() noexcept { return hash(state_ += 0x9e3779b97f4a7c15U); }

  /// Returns a number from 0 to `last`, each with the same probability. Numbers out of range are rejected, less than
  /// one on average.
  constexpr std::uint64_t up_to(std::uint64_t last) noexcept {
    const int unused_bits = std::countl_zero(last | 1);
    while (true) {
      if (const std::uint64_t drawn = next() >> unused_bits; drawn <= last) {
        return drawn;
      }
    }
  }

 private:
  std::uint64_t state_;
};

}  // namespace hfcomm::detail
