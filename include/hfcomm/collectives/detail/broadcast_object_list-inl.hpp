// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <hfcomm/collectives/broadcast_object_list.hpp>
#include <hfcomm/collectives/detail/exchange_messages.hpp>
#include <hfcomm/core/config.hpp>

namespace hfcomm::detail {

HFCOMM_INLINE std::span<const std::byte> take_object_bytes(std::span<const std::byte>& message, std::size_t index) {
  std::uint64_t size = 0;
  if (message.size() < sizeof(size)) {
    throw_error<decode_error>({"object ", index, " is missing"});
  }
  std::memcpy(&size, message.data(), sizeof(size));
  message = message.subspan(sizeof(size));
  if (size > message.size()) {
    throw_error<decode_error>({"object ", index, " is cut off"});
  }
  const auto bytes = message.first(static_cast<std::size_t>(size));
  message = message.subspan(static_cast<std::size_t>(size));
  return bytes;
}

HFCOMM_INLINE void require_end_of_objects(std::span<const std::byte> message) {
  if (!message.empty()) {
    throw_error<decode_error>({message.size(), " bytes are left over"});
  }
}

HFCOMM_INLINE void fail_object(std::size_t index, const decode_error& problem) {
  throw_error<decode_error>({"object ", index, ": ", problem.detail()});
}

HFCOMM_INLINE std::vector<std::byte> exchange_objects(running_call& running, const operation& call) {
  auto received = exchange_messages(running.engine(), call, running.scratch());
  return std::move(received[static_cast<std::size_t>(call.root)]);
}

HFCOMM_INLINE void fail_objects(const running_call& running, int root, const decode_error& problem) {
  throw_error<decode_error>(running.context(), {"the objects from rank ", root, ": ", problem.detail()});
}

}  // namespace hfcomm::detail
