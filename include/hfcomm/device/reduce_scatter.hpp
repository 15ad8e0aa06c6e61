// SPDX-License-Identifier: MIT
#pragma once

#include <span>

#include <hfcomm/call/counts_of_ranks.hpp>
#include <hfcomm/core/call_site.hpp>
#include <hfcomm/device/detail/device_reductions.hpp>

namespace hfcomm {

/// Reduces device memory and leaves each rank one part of the result in `out`. `in` is `group.size()` times as long,
/// and `out` may be this rank's part of it. Otherwise as `all_reduce` of device memory.
template <reducible_device_range In, detail::output_for<In> Out>
void reduce_scatter(const In& in, Out&& out, stream_ref stream, detail::op_on<In> op = reduce_op::sum,
                    detail::or_group group = {}, call_site where = call_site::current()) {
  detail::device_reduce_scatter(
      detail::reduction_call_without_kernel("device reduce_scatter", engines::movement::to_all, in, -1, op, where),
      detail::elements_of(in), detail::writable_elements_of(out), detail::on_stream{stream}, op.in(group, where));
}

/// The same with parts of different lengths: rank r gets `counts[r]` elements. The counts are the same on all ranks.
template <reducible_device_range In, detail::output_for<In> Out>
void reduce_scatter(const In& in, Out&& out, const detail::counts_of_ranks& counts, stream_ref stream,
                    detail::op_on<In> op = reduce_op::sum, detail::or_group group = {},
                    call_site where = call_site::current()) {
  detail::device_reduce_scatter(
      detail::reduction_call_without_kernel("device reduce_scatter", engines::movement::to_all, in, -1, op, where),
      detail::elements_of(in), detail::writable_elements_of(out), counts, detail::on_stream{stream},
      op.in(group, where));
}

/// The same on a stream of the group's own, which waits for the work already on `stream`. The following work on
/// `stream` does not wait for it.
template <reducible_device_range In, detail::output_for<In> Out>
device_work reduce_scatter_async(const In& in, Out&& out, stream_ref stream, detail::op_on<In> op = reduce_op::sum,
                                 detail::or_group group = {}, call_site where = call_site::current()) {
  return detail::device_reduce_scatter(
      detail::reduction_call_without_kernel("device reduce_scatter", engines::movement::to_all, in, -1, op, where),
      detail::elements_of(in), detail::writable_elements_of(out), detail::on_own_stream{stream}, op.in(group, where));
}

/// The same with parts of different lengths, on a stream of the group's own.
template <reducible_device_range In, detail::output_for<In> Out>
device_work reduce_scatter_async(const In& in, Out&& out, const detail::counts_of_ranks& counts, stream_ref stream,
                                 detail::op_on<In> op = reduce_op::sum, detail::or_group group = {},
                                 call_site where = call_site::current()) {
  return detail::device_reduce_scatter(
      detail::reduction_call_without_kernel("device reduce_scatter", engines::movement::to_all, in, -1, op, where),
      detail::elements_of(in), detail::writable_elements_of(out), counts, detail::on_own_stream{stream},
      op.in(group, where));
}

// Calls that are refused, so that the message says why.

template <detail::irreducible_device_range In, class... Rest>
void reduce_scatter(In&&, Rest&&...) = delete;  // NCCL reduces no 16-bit integers; a complex number is two reals
template <detail::irreducible_device_range In, class... Rest>
device_work reduce_scatter_async(In&&,
                                 Rest&&...) = delete;  // NCCL reduces no 16-bit integers; a complex number is two reals

}  // namespace hfcomm
