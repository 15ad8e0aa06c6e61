// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

/// Parts of a message, each behind its size, a u64.
namespace hfcomm::detail {

/// Appends the space for a part's size. Returns the message's size before that.
inline std::size_t begin_sized_part(std::vector<std::byte>& message) {
  const std::size_t start = message.size();
  message.resize(start + sizeof(std::uint64_t));
  return start;
}

/// Writes the size of the part that began at `start` and ends at the message's end.
inline void end_sized_part(std::vector<std::byte>& message, std::size_t start) {
  const std::uint64_t size = message.size() - start - sizeof(size);
  std::memcpy(message.data() + start, &size, sizeof(size));
}

}  // namespace hfcomm::detail
