// SPDX-License-Identifier: MIT
#pragma once

#include <hfcomm/core/call_site.hpp>
#include <hfcomm/device/detail/device_moves.hpp>

namespace hfcomm {

/// Gives every rank the root's device memory, in place. The length is the same on all ranks. Any trivially copyable
/// type.
///
/// Returns at once, runs on the stream and throws as `all_gather` of device memory does, and usage_error for a wrong
/// root.
template <writable_device_range R>
void broadcast(R&& data, stream_ref stream, detail::optional_root root = 0, detail::or_group group = {},
               call_site where = call_site::current()) {
  detail::device_broadcast(detail::buffer_call("device broadcast", engines::movement::from_root, data, root, where),
                           detail::writable_elements_of(data), detail::on_stream{stream}, root.in(group, where));
}

/// The same on a stream of the group's own, which waits for the work already on `stream`.
template <writable_device_range R>
device_work broadcast_async(R&& data, stream_ref stream, detail::optional_root root = 0, detail::or_group group = {},
                            call_site where = call_site::current()) {
  return detail::device_broadcast(
      detail::buffer_call("device broadcast", engines::movement::from_root, data, root, where),
      detail::writable_elements_of(data), detail::on_own_stream{stream}, root.in(group, where));
}

}  // namespace hfcomm
