// SPDX-License-Identifier: MIT
#pragma once

#include <source_location>
#include <span>
#include <string>
#include <vector>

#include <hfcomm/call/device_call.hpp>

namespace hfcomm {

namespace detail {

template <class In, class Out, class How>
auto device_all_to_all(In in, std::span<const std::size_t> in_counts, Out out, std::span<const std::size_t> out_counts,
                       bool uneven, How how, const process_group& group, std::source_location where) {
  using T = typename In::value_type;
  auto call = uneven ? uneven_call<T>("device all_to_all", movement::to_all, in.size(), -1, where)
                     : buffer_call<T>("device all_to_all", movement::to_all, in.size(), -1, where);
  const uneven_parts parts{part_lengths(in_counts, in.size(), "the input"),
                           part_lengths(out_counts, out.size(), "the output"), sizeof(T)};
  running_device_call running(group, call, uneven ? &parts : nullptr);
  require_device_memory(running, in);
  require_device_memory(running, out);
  std::vector<std::size_t> sent;
  std::vector<std::size_t> received;
  if (uneven) {
    parts.require(running, group.rank(), group.size());
    sent = in_bytes(in_counts, sizeof(T));
    received = in_bytes(out_counts, sizeof(T));
  } else {
    const auto ranks = static_cast<std::size_t>(group.size());
    running.require(in.size() == out.size() && in.size() % ranks == 0, [&] {
      return "the input has " + std::to_string(in.size()) + " elements and the output " + std::to_string(out.size()) +
             "; both must have the same number for each of " + std::to_string(ranks) + " ranks";
    });
    sent = equal_counts(in.size_bytes() / ranks, group.size());
    received = sent;
  }
  require_apart(running, device_bytes(in), device_bytes(out));
  return running.put(how, memory_of(in), [&](device_engine& engine, stream_ref stream) {
    engine.pass(call, device_parts(in, sent), device_parts(out, received), stream);
  });
}

}  // namespace detail

/// Gives every rank its part of every rank's device memory: rank r's `out` has the r-th parts of all `in`s, in rank
/// order. Any trivially copyable type. Put on the stream; returns at once.
template <device_range In, writable_device_range Out>
  requires std::same_as<device_value_t<In>, device_value_t<Out>>
void all_to_all(const In& in, Out&& out, stream_ref stream, const process_group& group = world(),
                std::source_location where = std::source_location::current()) {
  detail::device_all_to_all(as_device_span(in), {}, as_device_span(out), {}, false, detail::on_stream{stream}, group,
                            where);
}

/// Parts of different lengths: `in_counts[r]` elements for rank r, `out_counts[r]` from rank r. What a rank sends must
/// be what its receiver wants: without device checks (`with_device_checks`) nothing compares them.
template <device_range In, writable_device_range Out>
  requires std::same_as<device_value_t<In>, device_value_t<Out>>
void all_to_all(const In& in, std::span<const std::size_t> in_counts, Out&& out,
                std::span<const std::size_t> out_counts, stream_ref stream, const process_group& group = world(),
                std::source_location where = std::source_location::current()) {
  detail::device_all_to_all(as_device_span(in), in_counts, as_device_span(out), out_counts, true,
                            detail::on_stream{stream}, group, where);
}

template <device_range In, writable_device_range Out>
  requires std::same_as<device_value_t<In>, device_value_t<Out>>
device_work all_to_all_async(const In& in, Out&& out, stream_ref stream, const process_group& group = world(),
                             std::source_location where = std::source_location::current()) {
  return detail::device_all_to_all(as_device_span(in), {}, as_device_span(out), {}, false,
                                   detail::on_own_stream{stream}, group, where);
}

template <device_range In, writable_device_range Out>
  requires std::same_as<device_value_t<In>, device_value_t<Out>>
device_work all_to_all_async(const In& in, std::span<const std::size_t> in_counts, Out&& out,
                             std::span<const std::size_t> out_counts, stream_ref stream,
                             const process_group& group = world(),
                             std::source_location where = std::source_location::current()) {
  return detail::device_all_to_all(as_device_span(in), in_counts, as_device_span(out), out_counts, true,
                                   detail::on_own_stream{stream}, group, where);
}

}  // namespace hfcomm
