// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <source_location>
#include <span>
#include <string>
#include <vector>

#include <hfcomm/call/typed_calls.hpp>
#include <hfcomm/collectives/coalesced.hpp>
#include <hfcomm/collectives/detail/buffer_collectives.hpp>
#include <hfcomm/ddp/ddp_options.hpp>
#include <hfcomm/ddp/detail/chunk_ring.hpp>
#include <hfcomm/ddp/parameter.hpp>
#include <hfcomm/device/detail/device_moves.hpp>
#include <hfcomm/device/nccl_group_scope.hpp>

namespace hfcomm::detail {

/// Gives every rank the root's bytes on a device, through the host. The work that follows on the stream comes after
/// that. A failure on one rank is an error on all. Collective.
inline void share_on_host(const std::vector<std::span<std::byte>>& on_device, int root, const process_group& group,
                          chunk_ring& ring, stream_ref stream, std::source_location where) {
  const operation call = buffer_call<std::byte>("device broadcast", movement::from_root, 0, root, where);
  const auto announce = [&](const std::string& why) {
    operation refused = call;
    running_call(group, refused).announce_failure(why);
  };
  const auto broadcast = [&](std::span<std::byte> chunk) {
    operation one = call;
    one.bytes = chunk.size();
    broadcast_buffer(operation(one), {chunk.data(), chunk.size(), 1}, group);
  };
  std::vector<staged_part> parts;
  parts.reserve(on_device.size());
  for (const auto bytes : on_device) {
    parts.push_back({.bytes = bytes, .goes_down = group.rank() == root, .goes_up = group.rank() != root});
  }
  ring.run_after(stream, parts, {[](std::span<std::byte> /*places*/) {}, broadcast, announce}, where);
  operation end = buffer_call<std::byte>("device broadcast", movement::none, 0, -1, where);
  running_call running(group, end);
  running.exchange_nothing();
}

/// Gives every rank the root's values or buffers, whose bytes are `part.*bytes_of`. Those in host memory go in few
/// operations of `group`. Those on a device go in one batch of `device_group`, which has the same ranks, or with a
/// `ring` through the host.
template <class Part>
void share_model(const std::vector<Part>& parts, std::span<std::byte> Part::* bytes_of, int root,
                 const process_group& group, const process_group& device_group, const ddp_options& options,
                 chunk_ring* ring, std::source_location where) {
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
  if (!on_device.empty() && ring != nullptr) {
    share_on_host(on_device, root, device_group, *ring, options.stream, where);
  } else if (!on_device.empty()) {
    nccl_group_scope batch(device_group, where);
    for (const auto bytes : on_device) {
      device_broadcast(buffer_call<std::byte>("device broadcast", movement::from_root, bytes.size(), root, where),
                       {bytes.data(), bytes.size()}, on_stream{options.stream}, device_group);
    }
    batch.end();
  }
}

}  // namespace hfcomm::detail
