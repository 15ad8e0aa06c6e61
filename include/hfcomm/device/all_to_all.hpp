// SPDX-License-Identifier: MIT
#pragma once

#include <span>

#include <hfcomm/call/counts_of_ranks.hpp>
#include <hfcomm/core/call_site.hpp>
#include <hfcomm/device/detail/device_moves.hpp>

namespace hfcomm {

/// Gives every rank its part of every rank's device memory: rank r's `out` has the r-th parts of all `in`s, in rank
/// order. Any trivially copyable type.
///
/// Returns at once, runs on the stream and throws as `all_gather` of device memory does.
template <device_range In, detail::output_for<In> Out>
void all_to_all(const In& in, Out&& out, stream_ref stream, const process_group& group = world(),
                call_site where = call_site::current()) {
  detail::device_all_to_all(detail::buffer_call("device all_to_all", engines::movement::to_all, in, -1, where),
                            detail::elements_of(in), detail::writable_elements_of(out), detail::on_stream{stream},
                            group);
}

/// The same with parts of different lengths: `in_counts[r]` elements go to rank r, `out_counts[r]` come from rank r.
/// The sender's count and the receiver's count must be equal. Only device checks (`with_device_checks`) compare them.
template <device_range In, detail::output_for<In> Out>
void all_to_all(const In& in, const detail::counts_of_ranks& in_counts, Out&& out,
                const detail::counts_of_ranks& out_counts, stream_ref stream, const process_group& group = world(),
                call_site where = call_site::current()) {
  detail::device_all_to_all(detail::uneven_call("device all_to_all", engines::movement::to_all, in, -1, where),
                            detail::elements_of(in), in_counts, detail::writable_elements_of(out), out_counts,
                            detail::on_stream{stream}, group);
}

/// The same on a stream of the group's own, which waits for the work already on `stream`. The following work on
/// `stream` does not wait for it.
template <device_range In, detail::output_for<In> Out>
device_work all_to_all_async(const In& in, Out&& out, stream_ref stream, const process_group& group = world(),
                             call_site where = call_site::current()) {
  return detail::device_all_to_all(detail::buffer_call("device all_to_all", engines::movement::to_all, in, -1, where),
                                   detail::elements_of(in), detail::writable_elements_of(out),
                                   detail::on_own_stream{stream}, group);
}

/// The same with parts of different lengths, on a stream of the group's own.
template <device_range In, detail::output_for<In> Out>
device_work all_to_all_async(const In& in, const detail::counts_of_ranks& in_counts, Out&& out,
                             const detail::counts_of_ranks& out_counts, stream_ref stream,
                             const process_group& group = world(), call_site where = call_site::current()) {
  return detail::device_all_to_all(detail::uneven_call("device all_to_all", engines::movement::to_all, in, -1, where),
                                   detail::elements_of(in), in_counts, detail::writable_elements_of(out), out_counts,
                                   detail::on_own_stream{stream}, group);
}

}  // namespace hfcomm
