// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include <hfcomm/core/std_algorithm.hpp>

namespace hfcomm::engines {

/// The layout of one rank's slot: where the part for each other rank lies. Where all parts fit into `capacity`, they
/// lie one after another. Otherwise each gets an equal share of the slot and passes in several rounds. All ranks
/// calculate the same layout from the lengths.
class slot_parts {
 public:
  slot_parts(std::span<const std::uint64_t> lengths, std::size_t owner, std::size_t capacity)
      : lengths_(lengths), owner_(owner) {
    std::uint64_t total = 0;
    std::size_t parts = 0;
    for (std::size_t to = 0; to < lengths.size(); ++to) {
      if (to != owner && lengths[to] != 0) {
        total += lengths[to];
        largest_ = std::max(largest_, lengths[to]);
        ++parts;
      }
    }
    // 16 bytes are left for each of 1024 ranks even in the smallest slot.
    stride_ = total <= capacity ? 0 : capacity / parts / 16 * 16;
  }

  /// Returns the number of rounds that the longest part takes.
  [[nodiscard]] std::uint64_t rounds() const { return stride_ == 0 ? 1 : (largest_ + stride_ - 1) / stride_; }
  /// Returns where in the slot the part for `to` begins.
  [[nodiscard]] std::size_t offset_of(std::size_t to) const {
    std::size_t place = 0;
    for (std::size_t before = 0; before < to; ++before) {
      if (before != owner_ && lengths_[before] != 0) {
        place += stride_ == 0 ? static_cast<std::size_t>(lengths_[before]) : stride_;
      }
    }
    return place;
  }
  /// Returns the offset and length of what round `round` carries of the part for `to`.
  [[nodiscard]] std::pair<std::uint64_t, std::size_t> piece(std::size_t to, std::uint64_t round) const {
    const std::uint64_t length = lengths_[to];
    if (stride_ == 0) {
      return {0, round == 0 ? static_cast<std::size_t>(length) : 0};
    }
    const std::uint64_t offset = std::min(round * stride_, length);
    return {offset, static_cast<std::size_t>(std::min<std::uint64_t>(stride_, length - offset))};
  }

 private:
  std::span<const std::uint64_t> lengths_;
  std::size_t owner_;
  std::size_t stride_ = 0;  // 0: everything at once
  std::uint64_t largest_ = 0;
};

}  // namespace hfcomm::engines
