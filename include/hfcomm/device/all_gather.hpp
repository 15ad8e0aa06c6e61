// SPDX-License-Identifier: MIT
#pragma once

#include <source_location>
#include <span>
#include <string>

#include <hfcomm/call/device_call.hpp>

namespace hfcomm {

namespace detail {

template <class In, class Out, class How>
auto device_all_gather(In in, Out out, How how, const process_group& group, std::source_location where) {
  auto call = buffer_call<typename In::value_type>("device all_gather", movement::to_all, in.size(), -1, where);
  running_device_call running(group, call);
  require_device_memory(running, in);
  require_device_memory(running, out);
  running.require(is_one_for_each(out.size(), in.size(), group.size()), [&] {
    return "the output has " + std::to_string(out.size()) + " elements, but " + std::to_string(group.size()) +
           " ranks contribute " + std::to_string(in.size()) + " each";
  });
  const auto to = device_bytes(out);
  require_apart(running, to, device_bytes(in),
                to.subspan(in.size_bytes() * static_cast<std::size_t>(group.rank()), in.size_bytes()));
  return running.put(how, memory_of(out), [&](device_engine& engine, stream_ref stream) {
    engine.all_gather(call, in.data(), out.data(), in.size_bytes(), stream);
  });
}

template <class In, class Out, class How>
auto device_all_gather(In in, Out out, std::span<const std::size_t> counts, How how, const process_group& group,
                       std::source_location where) {
  using T = typename In::value_type;
  auto call = uneven_call<T>("device all_gather", movement::to_all, in.size(), -1, where);
  const uneven_parts parts{part_lengths(in.size()), part_lengths(counts, out.size(), "the output"), sizeof(T)};
  running_device_call running(group, call, &parts);
  require_device_memory(running, in);
  require_device_memory(running, out);
  parts.require(running, group.rank(), group.size());
  const auto places = parts_of(device_bytes(out), counts, sizeof(T));
  require_apart(running, device_bytes(out), device_bytes(in), places[static_cast<std::size_t>(group.rank())]);
  const auto bytes = in_bytes(counts, sizeof(T));
  return running.put(how, memory_of(out), [&](device_engine& engine, stream_ref stream) {
    engine.all_gather(call, in.data(), out.data(), std::span<const std::size_t>(bytes), stream);
  });
}

}  // namespace detail

/// Every rank's device memory, in rank order, in `out` on every rank, which is `group.size()` times as long as `in`;
/// `in` may be this rank's own place in it. Any trivially copyable type. Put on the stream; returns at once.
template <device_range In, writable_device_range Out>
  requires std::same_as<device_value_t<In>, device_value_t<Out>>
void all_gather(const In& in, Out&& out, stream_ref stream, const process_group& group = world(),
                std::source_location where = std::source_location::current()) {
  detail::device_all_gather(as_device_span(in), as_device_span(out), detail::on_stream{stream}, group, where);
}

/// Parts of different lengths: rank r contributes `counts[r]` elements; the counts are the same on all ranks.
template <device_range In, writable_device_range Out>
  requires std::same_as<device_value_t<In>, device_value_t<Out>>
void all_gather(const In& in, Out&& out, std::span<const std::size_t> counts, stream_ref stream,
                const process_group& group = world(), std::source_location where = std::source_location::current()) {
  detail::device_all_gather(as_device_span(in), as_device_span(out), counts, detail::on_stream{stream}, group, where);
}

template <device_range In, writable_device_range Out>
  requires std::same_as<device_value_t<In>, device_value_t<Out>>
device_work all_gather_async(const In& in, Out&& out, stream_ref stream, const process_group& group = world(),
                             std::source_location where = std::source_location::current()) {
  return detail::device_all_gather(as_device_span(in), as_device_span(out), detail::on_own_stream{stream}, group,
                                   where);
}

template <device_range In, writable_device_range Out>
  requires std::same_as<device_value_t<In>, device_value_t<Out>>
device_work all_gather_async(const In& in, Out&& out, std::span<const std::size_t> counts, stream_ref stream,
                             const process_group& group = world(),
                             std::source_location where = std::source_location::current()) {
  return detail::device_all_gather(as_device_span(in), as_device_span(out), counts, detail::on_own_stream{stream},
                                   group, where);
}

}  // namespace hfcomm
