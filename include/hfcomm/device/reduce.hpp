// SPDX-License-Identifier: MIT
#pragma once

#include <source_location>
#include <string>

#include <hfcomm/call/device_call.hpp>

namespace hfcomm {

namespace detail {

template <class In, class Out, class How>
auto device_reduce(In in, Out out, How how, int root, reduce_op op, const process_group& group,
                   std::source_location where) {
  auto call = reduction_call<typename In::value_type>("device reduce", movement::to_root, in.size(), root, op, where);
  running_device_call running(group, call);
  running.require_root();
  require_valid(running, call);
  require_device_memory(running, in);
  if (group.rank() == root) {
    require_device_memory(running, out);
    running.require(out.size() == in.size(), [&] {
      return "the output has " + std::to_string(out.size()) + " elements, the input " + std::to_string(in.size());
    });
    require_apart(running, device_bytes(in), device_bytes(out), device_bytes(in));
  }
  return running.put(how, memory_of(in), [&](device_engine& engine, stream_ref stream) {
    engine.reduce(call, in.data(), out.data(), in.size(), stream);
  });
}

}  // namespace detail

/// Reduces device memory element by element into the root's `out`; elsewhere `out` is not looked at. Otherwise as
/// `all_reduce` of device memory.
template <reducible_device_range In, writable_reducible_device_range Out>
  requires std::same_as<device_value_t<In>, device_value_t<Out>>
void reduce(const In& in, Out&& out, stream_ref stream, int root,
            detail::op_for<device_value_t<In>> op = reduce_op::sum, const process_group& group = world(),
            std::source_location where = std::source_location::current()) {
  detail::device_reduce(as_device_span(in), as_device_span(out), detail::on_stream{stream}, root, op, group, where);
}

/// In place on the root; elsewhere the data stays as it is.
template <writable_reducible_device_range R>
void reduce(R&& data, stream_ref stream, int root, detail::op_for<device_value_t<R>> op = reduce_op::sum,
            const process_group& group = world(), std::source_location where = std::source_location::current()) {
  const auto span = as_device_span(data);
  detail::device_reduce(span, span, detail::on_stream{stream}, root, op, group, where);
}

template <reducible_device_range In, writable_reducible_device_range Out>
  requires std::same_as<device_value_t<In>, device_value_t<Out>>
device_work reduce_async(const In& in, Out&& out, stream_ref stream, int root,
                         detail::op_for<device_value_t<In>> op = reduce_op::sum, const process_group& group = world(),
                         std::source_location where = std::source_location::current()) {
  return detail::device_reduce(as_device_span(in), as_device_span(out), detail::on_own_stream{stream}, root, op, group,
                               where);
}

template <writable_reducible_device_range R>
device_work reduce_async(R&& data, stream_ref stream, int root, detail::op_for<device_value_t<R>> op = reduce_op::sum,
                         const process_group& group = world(),
                         std::source_location where = std::source_location::current()) {
  const auto span = as_device_span(data);
  return detail::device_reduce(span, span, detail::on_own_stream{stream}, root, op, group, where);
}

}  // namespace hfcomm
