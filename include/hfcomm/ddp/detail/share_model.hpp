// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <source_location>
#include <span>
#include <vector>

#include <hfcomm/collectives/coalesced.hpp>
#include <hfcomm/ddp/ddp_options.hpp>
#include <hfcomm/ddp/parameter.hpp>
#include <hfcomm/device/broadcast.hpp>
#include <hfcomm/device/nccl_group_scope.hpp>

namespace hfcomm::detail {

/// Gives every rank the root's values, or buffers: those in host memory in few operations of `group`, those on a device
/// in one batch of `device_group`, which has the same ranks.
template <class Part>
void share_model(const std::vector<Part>& parts, std::span<std::byte> Part::* bytes_of, int root,
                 const process_group& group, const process_group& device_group, const ddp_options& options,
                 std::source_location where) {
  if (group.size() == 1) {
    return;
  }
  std::vector<coalesced_piece> pieces;
  std::vector<device_span<std::byte>> on_device;
  for (const Part& part : parts) {
    const std::span<std::byte> bytes = part.*bytes_of;
    if (part.on_device) {
      on_device.emplace_back(bytes.data(), bytes.size());
    } else {
      pieces.push_back({element_type::none, bytes});
    }
  }
  if (!pieces.empty()) {
    broadcast_pieces(buffer_call<std::byte>("coalesced broadcast", movement::from_root, 0, root, where), pieces,
                     options.broadcast_chunk_bytes, group, describe_pieces<std::byte>(pieces));
  }
  if (!on_device.empty()) {
    nccl_group_scope together(device_group, where);
    for (const auto bytes : on_device) {
      broadcast(bytes, options.stream, root, device_group, where);
    }
    together.end();
  }
}

}  // namespace hfcomm::detail
