// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace hfcomm::engines {

/// Where a rank's slot has the part for each other rank: one window behind the other, as long as the parts where all
/// fit into `capacity` together, equally long otherwise. Everyone calculates it from the lengths.
class windows {
 public:
  windows(std::span<const std::uint64_t> lengths, std::size_t owner, std::size_t capacity)
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
    window_ = total <= capacity ? 0 : capacity / parts / 16 * 16;
  }

  [[nodiscard]] std::uint64_t rounds() const { return window_ == 0 ? 1 : (largest_ + window_ - 1) / window_; }
  [[nodiscard]] std::size_t place(std::size_t to) const {
    std::size_t place = 0;
    for (std::size_t before = 0; before < to; ++before) {
      if (before != owner_ && lengths_[before] != 0) {
        place += window_ == 0 ? static_cast<std::size_t>(lengths_[before]) : window_;
      }
    }
    return place;
  }
  /// What round `round` carries of the part for `to`.
  [[nodiscard]] std::pair<std::uint64_t, std::size_t> piece(std::size_t to, std::uint64_t round) const {
    const std::uint64_t length = lengths_[to];
    if (window_ == 0) {
      return {0, round == 0 ? static_cast<std::size_t>(length) : 0};
    }
    const std::uint64_t offset = std::min(round * window_, length);
    return {offset, static_cast<std::size_t>(std::min<std::uint64_t>(window_, length - offset))};
  }

 private:
  std::span<const std::uint64_t> lengths_;
  std::size_t owner_;
  std::size_t window_ = 0;  // 0: everything at once
  std::uint64_t largest_ = 0;
};

}  // namespace hfcomm::engines
