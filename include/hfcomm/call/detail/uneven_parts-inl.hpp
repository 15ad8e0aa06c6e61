// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>

#include <hfcomm/call/uneven_parts.hpp>
#include <hfcomm/core/config.hpp>
#include <hfcomm/engine/operation.hpp>

namespace hfcomm::detail {

HFCOMM_INLINE std::uint64_t fingerprint(std::span<const std::size_t> counts) noexcept {
  std::uint64_t hash = counts.size() + 1;
  for (const std::size_t count : counts) {
    hash = mix(hash, count);
  }
  return hash | 1;
}

template <class Byte>
std::vector<std::span<Byte>> take_apart(std::span<Byte> buffer, std::span<const std::size_t> counts,
                                        std::size_t width) {
  std::vector<std::span<Byte>> parts;
  parts.reserve(counts.size());
  std::size_t begin = 0;
  for (const std::size_t count : counts) {
    parts.push_back(buffer.subspan(begin, count * width));
    begin += count * width;
  }
  return parts;
}

HFCOMM_INLINE std::vector<std::span<std::byte>> parts_of(std::span<std::byte> buffer,
                                                         std::span<const std::size_t> counts, std::size_t width) {
  return take_apart(buffer, counts, width);
}
HFCOMM_INLINE std::vector<std::span<const std::byte>> parts_of(std::span<const std::byte> buffer,
                                                               std::span<const std::size_t> counts, std::size_t width) {
  return take_apart(buffer, counts, width);
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
