// SPDX-License-Identifier: MIT
#pragma once

#include <numeric>
#include <source_location>
#include <span>
#include <string>

#include <hfcomm/call/device_call.hpp>

namespace hfcomm {

namespace detail {

template <class In, class Out, class How>
auto device_reduce_scatter(In in, Out out, std::span<const std::size_t> counts, How how, reduce_op op,
                           const process_group& group, std::source_location where) {
  using T = typename In::value_type;
  auto call = reduction_call<T>("device reduce_scatter", movement::to_all, in.size(), -1, op, where);
  const bool uneven = !counts.empty();
  const uneven_parts parts{part_lengths(counts, in.size(), "the input"), part_lengths(out.size()), sizeof(T)};
  running_device_call running(group, call, uneven ? &parts : nullptr);
  require_valid(running, call);
  require_device_memory(running, in);
  require_device_memory(running, out);
  const auto rank = static_cast<std::size_t>(group.rank());
  std::size_t begin = rank * out.size();  // of this rank's part of the input
  if (uneven) {
    parts.require(running, group.rank(), group.size());
    begin = std::accumulate(counts.begin(), counts.begin() + group.rank(), std::size_t{0});
  } else {
    running.require(is_one_for_each(in.size(), out.size(), group.size()), [&] {
      return "the input has " + std::to_string(in.size()) + " elements, but each of " + std::to_string(group.size()) +
             " ranks wants " + std::to_string(out.size());
    });
  }
  require_apart(running, device_bytes(in), device_bytes(out), device_bytes(in.subspan(begin, out.size())));
  return running.put(how, memory_of(in), [&](device_engine& engine, stream_ref stream) {
    uneven ? engine.reduce_scatter(call, in.data(), out.data(), counts, stream)
           : engine.reduce_scatter(call, in.data(), out.data(), out.size(), stream);
  });
}

}  // namespace detail

/// Reduces device memory and leaves each rank one part of the result in `out`, which may be this rank's part of `in`;
/// `in` is `group.size()` times as long. Otherwise as `all_reduce` of device memory.
template <reducible_device_range In, writable_reducible_device_range Out>
  requires std::same_as<device_value_t<In>, device_value_t<Out>>
void reduce_scatter(const In& in, Out&& out, stream_ref stream, detail::op_for<device_value_t<In>> op = reduce_op::sum,
                    const process_group& group = world(),
                    std::source_location where = std::source_location::current()) {
  detail::device_reduce_scatter(as_device_span(in), as_device_span(out), {}, detail::on_stream{stream}, op, group,
                                where);
}

/// Parts of different lengths: rank r gets `counts[r]` elements; the counts are the same on all ranks.
template <reducible_device_range In, writable_reducible_device_range Out>
  requires std::same_as<device_value_t<In>, device_value_t<Out>>
void reduce_scatter(const In& in, Out&& out, std::span<const std::size_t> counts, stream_ref stream,
                    detail::op_for<device_value_t<In>> op = reduce_op::sum, const process_group& group = world(),
                    std::source_location where = std::source_location::current()) {
  detail::device_reduce_scatter(as_device_span(in), as_device_span(out), counts, detail::on_stream{stream}, op, group,
                                where);
}

template <reducible_device_range In, writable_reducible_device_range Out>
  requires std::same_as<device_value_t<In>, device_value_t<Out>>
device_work reduce_scatter_async(const In& in, Out&& out, stream_ref stream,
                                 detail::op_for<device_value_t<In>> op = reduce_op::sum,
                                 const process_group& group = world(),
                                 std::source_location where = std::source_location::current()) {
  return detail::device_reduce_scatter(as_device_span(in), as_device_span(out), {}, detail::on_own_stream{stream}, op,
                                       group, where);
}

template <reducible_device_range In, writable_reducible_device_range Out>
  requires std::same_as<device_value_t<In>, device_value_t<Out>>
device_work reduce_scatter_async(const In& in, Out&& out, std::span<const std::size_t> counts, stream_ref stream,
                                 detail::op_for<device_value_t<In>> op = reduce_op::sum,
                                 const process_group& group = world(),
                                 std::source_location where = std::source_location::current()) {
  return detail::device_reduce_scatter(as_device_span(in), as_device_span(out), counts, detail::on_own_stream{stream},
                                       op, group, where);
}

}  // namespace hfcomm
