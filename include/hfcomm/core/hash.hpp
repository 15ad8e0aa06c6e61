// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string_view>

namespace hfcomm::detail {

/// Returns the FNV-1a hash of a text.
constexpr std::uint64_t fnv1a(std::string_view text, std::uint64_t hash = 0xcbf29ce484222325ULL) noexcept {
  for (const char c : text) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  }
  return hash;
}

/// Returns the hash of one round of a multiply-xorshift mixer. It takes a few cycles and suffices to distinguish calls.
constexpr std::uint64_t mix(std::uint64_t hash, std::uint64_t value) noexcept {
  hash = (hash ^ value) * 0x9fb21c651e98df25ULL;
  return hash ^ (hash >> 32);
}

}  // namespace hfcomm::detail
