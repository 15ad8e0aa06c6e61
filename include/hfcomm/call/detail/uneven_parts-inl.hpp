// SPDX-License-Identifier: MIT
#pragma once

#include <hfcomm/call/uneven_parts.hpp>
#include <hfcomm/core/config.hpp>
#include <hfcomm/core/std_algorithm.hpp>
#include <hfcomm/engine/operation.hpp>

namespace hfcomm::detail {

HFCOMM_INLINE std::uint64_t fingerprint(std::span<const std::size_t> counts) noexcept {
  std::uint64_t hash = counts.size() + 1;
  for (const std::size_t count : counts) {
    hash = mix(hash, count);
  }
  return hash | 1;
}

HFCOMM_INLINE std::vector<std::size_t> equal_counts(std::size_t count, int ranks) {
  return std::vector<std::size_t>(static_cast<std::size_t>(ranks), count);
}

HFCOMM_INLINE std::vector<std::uint64_t> byte_counts(std::span<const std::size_t> counts, std::size_t width) {
  std::vector<std::uint64_t> bytes(counts.size());
  std::transform(counts.begin(), counts.end(), bytes.begin(), [&](std::size_t count) { return count * width; });
  return bytes;
}

}  // namespace hfcomm::detail
