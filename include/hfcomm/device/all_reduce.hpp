// SPDX-License-Identifier: MIT
#pragma once

#include <source_location>
#include <string>

#include <hfcomm/call/device_call.hpp>

namespace hfcomm {

namespace detail {

template <class In, class Out, class How>
auto device_all_reduce(In in, Out out, How how, reduce_op op, const process_group& group, std::source_location where) {
  auto call = reduction_call<typename In::value_type>("device all_reduce", movement::to_all, in.size(), -1, op, where);
  running_device_call running(group, call);
  require_valid(running, call);
  require_device_memory(running, in);
  require_device_memory(running, out);
  running.require(out.size() == in.size(), [&] {
    return "the output has " + std::to_string(out.size()) + " elements, the input " + std::to_string(in.size());
  });
  require_apart(running, device_bytes(in), device_bytes(out), device_bytes(in));
  return running.put(how, memory_of(out), [&](device_engine& engine, stream_ref stream) {
    engine.reduce(call, in.data(), out.data(), in.size(), stream);
  });
}

}  // namespace detail

/// Reduces device memory element by element into every rank's `out`, which is as long as `in` and may be `in`. Put on
/// the stream, where it comes after what is there and before what follows; returns at once. The order of additions is
/// NCCL's: all ranks get the same bits, but 16-bit floats may be rounded more than once, and `average` divides in the
/// elements' type.
///
/// Throws usage_error for memory that is not the current communicator's device's, 16-bit integers and bitwise
/// reductions (NCCL has neither); the other ranks hear of it where they wait (`synchronize`).
template <reducible_device_range In, writable_reducible_device_range Out>
  requires std::same_as<device_value_t<In>, device_value_t<Out>>
void all_reduce(const In& in, Out&& out, stream_ref stream, detail::op_for<device_value_t<In>> op = reduce_op::sum,
                const process_group& group = world(), std::source_location where = std::source_location::current()) {
  detail::device_all_reduce(as_device_span(in), as_device_span(out), detail::on_stream{stream}, op, group, where);
}

/// In place.
template <writable_reducible_device_range R>
void all_reduce(R&& data, stream_ref stream, detail::op_for<device_value_t<R>> op = reduce_op::sum,
                const process_group& group = world(), std::source_location where = std::source_location::current()) {
  const auto span = as_device_span(data);
  detail::device_all_reduce(span, span, detail::on_stream{stream}, op, group, where);
}

/// The same on a stream of the group's own, behind what is on `stream` by now; what follows there need not wait.
template <reducible_device_range In, writable_reducible_device_range Out>
  requires std::same_as<device_value_t<In>, device_value_t<Out>>
device_work all_reduce_async(const In& in, Out&& out, stream_ref stream,
                             detail::op_for<device_value_t<In>> op = reduce_op::sum,
                             const process_group& group = world(),
                             std::source_location where = std::source_location::current()) {
  return detail::device_all_reduce(as_device_span(in), as_device_span(out), detail::on_own_stream{stream}, op, group,
                                   where);
}

template <writable_reducible_device_range R>
device_work all_reduce_async(R&& data, stream_ref stream, detail::op_for<device_value_t<R>> op = reduce_op::sum,
                             const process_group& group = world(),
                             std::source_location where = std::source_location::current()) {
  const auto span = as_device_span(data);
  return detail::device_all_reduce(span, span, detail::on_own_stream{stream}, op, group, where);
}

}  // namespace hfcomm
