// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <hfcomm/core/plain.hpp>

namespace hfcomm {

/// The elements that a rank has received from every rank, one part after another in rank order, and their numbers.
template <plain T>
struct received_parts {
  std::vector<T> elements{};
  std::vector<std::size_t> counts{};  ///< One for each rank; empty on a rank that receives nothing.

  /// Returns the elements of rank `rank`, which must have a count.
  [[nodiscard]] std::span<const T> part(int rank) const {
    std::size_t begin = 0;
    for (std::size_t before = 0; before < static_cast<std::size_t>(rank); ++before) {
      begin += counts[before];
    }
    return std::span(elements).subspan(begin, counts[static_cast<std::size_t>(rank)]);
  }
};

}  // namespace hfcomm
