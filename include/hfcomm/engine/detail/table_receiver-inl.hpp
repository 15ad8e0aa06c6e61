// SPDX-License-Identifier: MIT
#pragma once

#include <hfcomm/core/config.hpp>
#include <hfcomm/engine/reduction/copy_bytes.hpp>
#include <hfcomm/engine/table_receiver.hpp>

namespace hfcomm::detail {

HFCOMM_INLINE void table_receiver::receive(int source, std::span<const std::byte> chunk, std::uint64_t offset,
                                           std::uint64_t total) {
  if (!chunk.empty()) {
    copy_received(table_.data() + static_cast<std::uint64_t>(source) * total + offset, chunk, source, own_);
  }
}

HFCOMM_INLINE std::byte* table_receiver::place_for(int source, std::uint64_t total) {
  return table_.data() + static_cast<std::uint64_t>(source) * total;
}

}  // namespace hfcomm::detail
