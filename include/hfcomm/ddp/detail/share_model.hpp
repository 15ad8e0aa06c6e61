// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <source_location>
#include <span>
#include <vector>

#include <hfcomm/call/device_call.hpp>
#include <hfcomm/collectives/coalesced.hpp>
#include <hfcomm/core/stream_ref.hpp>
#include <hfcomm/ddp/ddp_options.hpp>
#include <hfcomm/ddp/parameter.hpp>
#include <hfcomm/device/nccl_group_scope.hpp>
#include <hfcomm/engine/device_engine.hpp>

namespace hfcomm::detail {

/// Gives every rank the root's device memory, in place: the device form of `broadcast` for bytes.
inline void broadcast_on_device(std::span<std::byte> bytes, stream_ref stream, int root, const process_group& group,
                                std::source_location where) {
  auto call = buffer_call<std::byte>("device broadcast", movement::from_root, bytes.size(), root, where);
  running_device_call running(group, call);
  running.put(on_stream{stream}, {bytes.data(), bytes.size()}, [&](device_engine& engine, stream_ref on) {
    engine.broadcast(call, bytes.data(), bytes.data(), bytes.size(), on);
  });
}

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
      broadcast_on_device(bytes, options.stream, root, device_group, where);
    }
    batch.end();
  }
}

}  // namespace hfcomm::detail
