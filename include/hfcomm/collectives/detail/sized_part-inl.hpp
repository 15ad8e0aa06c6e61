// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <cstring>

#include <hfcomm/collectives/detail/sized_part.hpp>
#include <hfcomm/core/config.hpp>

namespace hfcomm::detail {

HFCOMM_INLINE std::size_t begin_sized_part(std::vector<std::byte>& message) {
  const std::size_t start = message.size();
  message.resize(start + sizeof(std::uint64_t));
  return start;
}

HFCOMM_INLINE void end_sized_part(std::vector<std::byte>& message, std::size_t start) {
  const std::uint64_t size = message.size() - start - sizeof(size);
  std::memcpy(message.data() + start, &size, sizeof(size));
}

}  // namespace hfcomm::detail
