// SPDX-License-Identifier: MIT
#pragma once

#include <source_location>

#include <hfcomm/device/detail/device_moves.hpp>

namespace hfcomm {

/// Gives every rank the root's device memory, in place. The length is the same on all ranks. Any trivially copyable
/// type.
///
/// Returns at once. On the stream it runs after the earlier work and before the later work.
///
/// Throws usage_error for a wrong root, and for memory of a device that the group is not connected on. The other ranks
/// then get peer_error where they wait (`synchronize`). Throws engine_error where NCCL or the CUDA runtime fails.
template <writable_device_range R>
void broadcast(R&& data, stream_ref stream, int root = 0, const process_group& group = world(),
               std::source_location where = std::source_location::current()) {
  detail::device_broadcast(detail::buffer_call<device_value_t<R>>("device broadcast", engines::movement::from_root,
                                                                  as_device_span(data).size(), root, where),
                           detail::device_elements(data), detail::on_stream{stream}, group);
}

/// The same on a stream of the group's own, which waits for the work already on `stream`.
template <writable_device_range R>
device_work broadcast_async(R&& data, stream_ref stream, int root = 0, const process_group& group = world(),
                            std::source_location where = std::source_location::current()) {
  return detail::device_broadcast(
      detail::buffer_call<device_value_t<R>>("device broadcast", engines::movement::from_root,
                                             as_device_span(data).size(), root, where),
      detail::device_elements(data), detail::on_own_stream{stream}, group);
}

}  // namespace hfcomm
