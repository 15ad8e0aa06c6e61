// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <source_location>
#include <span>
#include <vector>

#include <hfcomm/call/typed_calls.hpp>
#include <hfcomm/collectives/coalesced.hpp>
#include <hfcomm/ddp/ddp_options.hpp>
#include <hfcomm/ddp/parameter.hpp>
#include <hfcomm/device/detail/device_moves.hpp>
#include <hfcomm/device/nccl_group_scope.hpp>

namespace hfcomm::detail {

/// Gives every rank the root's values or buffers, whose bytes are `part.*bytes_of`. Those in host memory go in few
/// operations of `group`, those on a device in one batch of `device_group`, which has the same ranks.
template <class Part>
void share_model(const std::vector<Part>& parts, std::span<std::byte> Part::* bytes_of, int root,
                 const process_group& group, const process_group& device_group, const ddp_options& options,
                 std::source_location where) {
  if (group.size() == 1) {
    return;
  }
  std::vector<coalesced_piece> on_host;
  std::vector<std::span<std::byte>> on_device;
  for (const Part& part : parts) {
    if (part.on_device) {
      on_device.push_back(part.*bytes_of);
    } else {
      on_host.push_back({element_type::none, part.*bytes_of});
    }
  }
  if (!on_host.empty()) {
    broadcast_pieces(buffer_call<std::byte>("coalesced broadcast", movement::from_root, 0, root, where), on_host,
                     options.broadcast_chunk_bytes, group, describe_pieces<std::byte>(on_host));
  }
  if (!on_device.empty()) {
    nccl_group_scope batch(device_group, where);
    for (const auto bytes : on_device) {
      device_broadcast(buffer_call<std::byte>("device broadcast", movement::from_root, bytes.size(), root, where),
                       {bytes.data(), bytes.size()}, on_stream{options.stream}, device_group);
    }
    batch.end();
  }
}

}  // namespace hfcomm::detail
