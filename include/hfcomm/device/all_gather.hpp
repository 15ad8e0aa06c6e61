// SPDX-License-Identifier: MIT
#pragma once

#include <span>

#include <hfcomm/call/counts_of_ranks.hpp>
#include <hfcomm/core/call_site.hpp>
#include <hfcomm/device/detail/device_moves.hpp>

namespace hfcomm {

/// Gathers every rank's device memory, in rank order, into `out` on every rank. `out` is `group.size()` times as long
/// as `in`, and `in` may be this rank's part of it. Any trivially copyable type.
///
/// Returns at once. On the stream it runs after the earlier work and before the later work.
///
/// Throws usage_error for a wrong length, and for memory of a device that the group is not connected on. The other
/// ranks then get peer_error where they wait (`synchronize`). Throws engine_error where NCCL or the CUDA runtime fails.
template <device_range In, detail::output_for<In> Out>
void all_gather(const In& in, Out&& out, stream_ref stream, const process_group& group = world(),
                call_site where = call_site::current()) {
  detail::device_all_gather(detail::buffer_call("device all_gather", engines::movement::to_all, in, -1, where),
                            detail::elements_of(in), detail::writable_elements_of(out), detail::on_stream{stream},
                            group);
}

/// The same with parts of different lengths: rank r contributes `counts[r]` elements. The counts are the same on all
/// ranks.
template <device_range In, detail::output_for<In> Out>
void all_gather(const In& in, Out&& out, const detail::counts_of_ranks& counts, stream_ref stream,
                const process_group& group = world(), call_site where = call_site::current()) {
  detail::device_all_gather(detail::uneven_call("device all_gather", engines::movement::to_all, in, -1, where),
                            detail::elements_of(in), detail::writable_elements_of(out), counts,
                            detail::on_stream{stream}, group);
}

/// The same on a stream of the group's own, which waits for the work already on `stream`. The following work on
/// `stream` does not wait for it.
template <device_range In, detail::output_for<In> Out>
device_work all_gather_async(const In& in, Out&& out, stream_ref stream, const process_group& group = world(),
                             call_site where = call_site::current()) {
  return detail::device_all_gather(detail::buffer_call("device all_gather", engines::movement::to_all, in, -1, where),
                                   detail::elements_of(in), detail::writable_elements_of(out),
                                   detail::on_own_stream{stream}, group);
}

/// The same with parts of different lengths, on a stream of the group's own.
template <device_range In, detail::output_for<In> Out>
device_work all_gather_async(const In& in, Out&& out, const detail::counts_of_ranks& counts, stream_ref stream,
                             const process_group& group = world(), call_site where = call_site::current()) {
  return detail::device_all_gather(detail::uneven_call("device all_gather", engines::movement::to_all, in, -1, where),
                                   detail::elements_of(in), detail::writable_elements_of(out), counts,
                                   detail::on_own_stream{stream}, group);
}

}  // namespace hfcomm
