// SPDX-License-Identifier: MIT
#pragma once

#include <span>

#include <hfcomm/call/counts_of_ranks.hpp>
#include <hfcomm/core/call_site.hpp>
#include <hfcomm/device/detail/device_moves.hpp>

namespace hfcomm {

/// Gathers every rank's device memory, in rank order, into the root's `out`, which is `group.size()` times as long as
/// `in`. The other ranks' `out` is ignored and may be empty. Any trivially copyable type.
///
/// Returns at once, runs on the stream and throws as `all_gather` of device memory does, and usage_error for a wrong
/// root.
template <device_range In, detail::output_for<In> Out>
void gather(const In& in, Out&& out, stream_ref stream, detail::optional_root root = 0, detail::or_group group = {},
            call_site where = call_site::current()) {
  detail::device_gather(detail::buffer_call("device gather", engines::movement::to_root, in, root, where),
                        detail::elements_of(in), detail::writable_elements_of(out), detail::on_stream{stream},
                        root.in(group, where));
}

/// The same with parts of different lengths: the root gets `counts[r]` elements from rank r. The other ranks' `counts`
/// is ignored.
template <device_range In, detail::output_for<In> Out>
void gather(const In& in, Out&& out, const detail::counts_of_ranks& counts, stream_ref stream,
            detail::optional_root root = 0, detail::or_group group = {}, call_site where = call_site::current()) {
  detail::device_gather(detail::uneven_call("device gather", engines::movement::to_root, in, root, where),
                        detail::elements_of(in), detail::writable_elements_of(out), counts, detail::on_stream{stream},
                        root.in(group, where));
}

/// The same on a stream of the group's own, which waits for the work already on `stream`. The following work on
/// `stream` does not wait for it.
template <device_range In, detail::output_for<In> Out>
device_work gather_async(const In& in, Out&& out, stream_ref stream, detail::optional_root root = 0,
                         detail::or_group group = {}, call_site where = call_site::current()) {
  return detail::device_gather(detail::buffer_call("device gather", engines::movement::to_root, in, root, where),
                               detail::elements_of(in), detail::writable_elements_of(out),
                               detail::on_own_stream{stream}, root.in(group, where));
}

/// The same with parts of different lengths, on a stream of the group's own.
template <device_range In, detail::output_for<In> Out>
device_work gather_async(const In& in, Out&& out, const detail::counts_of_ranks& counts, stream_ref stream,
                         detail::optional_root root = 0, detail::or_group group = {},
                         call_site where = call_site::current()) {
  return detail::device_gather(detail::uneven_call("device gather", engines::movement::to_root, in, root, where),
                               detail::elements_of(in), detail::writable_elements_of(out), counts,
                               detail::on_own_stream{stream}, root.in(group, where));
}

}  // namespace hfcomm
