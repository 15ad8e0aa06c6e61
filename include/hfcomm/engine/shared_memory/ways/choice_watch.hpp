// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>

#include <hfcomm/core/std_algorithm.hpp>

namespace hfcomm::engines {

/// The cost of an operation: picoseconds for each of its bytes. So operations of one size class can be compared.
using byte_cost = std::uint32_t;
inline constexpr byte_cost unknown_cost = std::numeric_limits<byte_cost>::max();

/// Returns the nanoseconds of an operation on `bytes`.
[[nodiscard]] constexpr std::uint64_t nanoseconds_of(std::uint64_t cost, std::size_t bytes) noexcept {
  return cost * bytes / 1000;
}

/// Watches the way that is chosen for a class of operations, and says when to try all ways again. The host of a virtual
/// machine may move its cores, and ordinary stores then take several times as long. All ranks count the same operations
/// and are told the same costs, so all come to the same answers.
class choice_watch {
 public:
  /// `usual` is the cost of an operation when the way was chosen, or unknown_cost.
  explicit choice_watch(byte_cost usual = unknown_cost) noexcept : usual_(usual) {}

  /// Counts an operation on `bytes` that went the chosen way.
  void count(std::size_t bytes) noexcept {
    ++operations_;
    bytes_ += bytes;
  }

  /// Returns whether the next operation, on `bytes`, is to be measured: about one for each 500 us, but no fewer than
  /// one of 64.
  [[nodiscard]] bool is_due(std::size_t bytes) const noexcept {
    const std::uint64_t each = std::max<std::uint64_t>(nanoseconds_of(usual_, bytes), 1);
    const std::uint64_t interval = usual_ == unknown_cost ? 16 : std::clamp<std::uint64_t>(500'000 / each, 1, 64);
    return (operations_ + 1) % interval == 0;
  }

  /// Adds the cost of an operation that was measured; unknown_cost changes nothing. Returns whether all ways are to be
  /// tried again: after three in a row that cost more than twice as much as usual, or after a second of operations, but
  /// at least 500.
  [[nodiscard]] bool add_cost(byte_cost cost) noexcept {
    constexpr int slow_in_a_row = 3;
    constexpr std::uint64_t fewest = 500;  // trying all ways takes a tenth of that
    constexpr std::uint64_t longest = std::chrono::nanoseconds(std::chrono::seconds(1)).count();
    usual_ = std::min(usual_, cost);
    if (cost != unknown_cost) {
      slow_ = cost / 2 > usual_ ? slow_ + 1 : 0;
    }
    return slow_ >= slow_in_a_row ||
           (usual_ != unknown_cost && operations_ >= fewest && nanoseconds_of(usual_, bytes_) > longest);
  }

 private:
  byte_cost usual_;
  std::uint64_t operations_ = 0;  // since the way was chosen
  std::size_t bytes_ = 0;         // of them
  int slow_ = 0;                  // the last so many that were measured took too long
};

}  // namespace hfcomm::engines
