// SPDX-License-Identifier: MIT
#pragma once

#include <hfcomm/core/call_site.hpp>
#include <hfcomm/device/detail/device_reductions.hpp>

namespace hfcomm {

/// Reduces device memory element by element into every rank's `out`, which is as long as `in` and may be `in`. Runs on
/// the stream, after the earlier work and before the later work. Returns at once.
///
/// The order of additions is NCCL's. All ranks get the same bits, but 16-bit floats may be rounded more than once, and
/// `average` divides in the elements' type.
///
/// Throws usage_error for memory of a device that the group is not connected on, and for bitwise and logical
/// reductions, which NCCL lacks. The other ranks then get peer_error where they wait (`synchronize`).
template <reducible_device_range In, detail::output_for<In> Out>
void all_reduce(const In& in, Out&& out, stream_ref stream, detail::op_on<In> op = reduce_op::sum,
                detail::or_group group = {}, call_site where = call_site::current()) {
  detail::device_all_reduce(
      detail::reduction_call_without_kernel("device all_reduce", engines::movement::to_all, in, -1, op, where),
      detail::elements_of(in), detail::writable_elements_of(out), detail::on_stream{stream}, op.in(group, where));
}

/// Reduces in place.
template <writable_reducible_device_range R>
void all_reduce(R&& data, stream_ref stream, detail::op_on<R> op = reduce_op::sum, detail::or_group group = {},
                call_site where = call_site::current()) {
  all_reduce(data, data, stream, op, group, where);
}

/// The same on a stream of the group's own, which waits for the work already on `stream`. The following work on
/// `stream` does not wait for it.
template <reducible_device_range In, detail::output_for<In> Out>
device_work all_reduce_async(const In& in, Out&& out, stream_ref stream, detail::op_on<In> op = reduce_op::sum,
                             detail::or_group group = {}, call_site where = call_site::current()) {
  return detail::device_all_reduce(
      detail::reduction_call_without_kernel("device all_reduce", engines::movement::to_all, in, -1, op, where),
      detail::elements_of(in), detail::writable_elements_of(out), detail::on_own_stream{stream}, op.in(group, where));
}

/// The same in place, on a stream of the group's own.
template <writable_reducible_device_range R>
device_work all_reduce_async(R&& data, stream_ref stream, detail::op_on<R> op = reduce_op::sum,
                             detail::or_group group = {}, call_site where = call_site::current()) {
  return all_reduce_async(data, data, stream, op, group, where);
}

// Calls that are refused, so that the message says why.

template <detail::irreducible_device_range In, class... Rest>
void all_reduce(In&&, Rest&&...) = delete;  // NCCL reduces no 16-bit integers; a complex number is two reals
template <detail::irreducible_device_range In, class... Rest>
device_work all_reduce_async(In&&,
                             Rest&&...) = delete;  // NCCL reduces no 16-bit integers; a complex number is two reals

}  // namespace hfcomm
