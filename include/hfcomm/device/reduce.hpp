// SPDX-License-Identifier: MIT
#pragma once

#include <hfcomm/core/call_site.hpp>
#include <hfcomm/device/detail/device_reductions.hpp>

namespace hfcomm {

/// Reduces device memory element by element into the root's `out`. The other ranks' `out` is ignored. Otherwise as
/// `all_reduce` of device memory.
template <reducible_device_range In, detail::output_for<In> Out>
void reduce(const In& in, Out&& out, stream_ref stream, int root, detail::op_on<In> op = reduce_op::sum,
            detail::or_group group = {}, call_site where = call_site::current()) {
  detail::device_reduce(
      detail::reduction_call_without_kernel("device reduce", engines::movement::to_root, in, root, op, where),
      detail::elements_of(in), detail::writable_elements_of(out), detail::on_stream{stream}, op.in(group, where));
}

/// Reduces in place on the root. The other ranks' data stays as it is.
template <writable_reducible_device_range R>
void reduce(R&& data, stream_ref stream, int root, detail::op_on<R> op = reduce_op::sum, detail::or_group group = {},
            call_site where = call_site::current()) {
  reduce(data, data, stream, root, op, group, where);
}

/// The same on a stream of the group's own, which waits for the work already on `stream`. The following work on
/// `stream` does not wait for it.
template <reducible_device_range In, detail::output_for<In> Out>
device_work reduce_async(const In& in, Out&& out, stream_ref stream, int root, detail::op_on<In> op = reduce_op::sum,
                         detail::or_group group = {}, call_site where = call_site::current()) {
  return detail::device_reduce(
      detail::reduction_call_without_kernel("device reduce", engines::movement::to_root, in, root, op, where),
      detail::elements_of(in), detail::writable_elements_of(out), detail::on_own_stream{stream}, op.in(group, where));
}

/// The same in place, on a stream of the group's own.
template <writable_reducible_device_range R>
device_work reduce_async(R&& data, stream_ref stream, int root, detail::op_on<R> op = reduce_op::sum,
                         detail::or_group group = {}, call_site where = call_site::current()) {
  return reduce_async(data, data, stream, root, op, group, where);
}

// Calls that are refused, so that the message says why.

template <detail::irreducible_device_range In, class... Rest>
void reduce(In&&, Rest&&...) = delete;  // NCCL reduces no 16-bit integers; a complex number is two reals
template <detail::irreducible_device_range In, class... Rest>
device_work reduce_async(In&&, Rest&&...) = delete;  // NCCL reduces no 16-bit integers; a complex number is two reals

}  // namespace hfcomm
