// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace hfcomm::engines {

/// What an operation costs: picoseconds for each of its bytes. So operations of one size class can be compared.
using byte_cost = std::uint32_t;
inline constexpr byte_cost unknown_cost = std::numeric_limits<byte_cost>::max();

/// Returns the nanoseconds of an operation on `bytes`.
[[nodiscard]] constexpr std::uint64_t nanoseconds_of(std::uint64_t cost, std::size_t bytes) noexcept {
  return cost * bytes / 1000;
}

/// Watches the way that is chosen for a class of operations, and says when to look for the quickest one again: the
/// host of a virtual machine moves its cores, and ordinary stores then take 4 times as long or a quarter. All ranks
/// count the same operations and are told the same costs, so all come to the same answers.
class choice_watch {
 public:
  /// `usual` is what an operation cost when the way was chosen, or unknown_cost.
  explicit choice_watch(byte_cost usual = unknown_cost) noexcept : usual_(usual) {}

  /// Counts an operation that went the chosen way.
  void count() noexcept { ++operations_; }

  /// Returns whether the next operation, on `bytes`, is to be measured: one for every 500 us, at most every one and at
  /// least one of 64. Two readings of the clock then take 0.01 % of the time.
  [[nodiscard]] bool is_due(std::size_t bytes) const noexcept {
    const std::uint64_t each = usual_ == unknown_cost ? 1 : std::max<std::uint64_t>(nanoseconds_of(usual_, bytes), 1);
    const std::uint64_t interval = usual_ == unknown_cost ? 16 : std::clamp<std::uint64_t>(500'000 / each, 1, 64);
    return (operations_ + 1) % interval == 0;
  }

  /// Takes what an operation on `bytes` has cost. Returns whether all ways are to be tried again, because three
  /// operations in a row took twice as long as usual, or because such operations took a second in all.
  [[nodiscard]] bool is_over(byte_cost cost, std::size_t bytes) noexcept {
    if (usual_ == unknown_cost) {
      usual_ = cost;
    }
    slow_ = cost != unknown_cost && cost / 2 > usual_ ? slow_ + 1 : 0;
    constexpr std::uint64_t longest = std::chrono::nanoseconds(std::chrono::seconds(1)).count();
    return slow_ == slow_in_a_row || (usual_ != unknown_cost && operations_ * nanoseconds_of(usual_, bytes) > longest);
  }

  static constexpr int slow_in_a_row = 3;

 private:
  byte_cost usual_;
  std::uint64_t operations_ = 0;  // since the way was chosen
  int slow_ = 0;                  // the last so many that were measured took too long
};

}  // namespace hfcomm::engines
