// SPDX-License-Identifier: MIT
#pragma once

#include <source_location>
#include <span>
#include <string>
#include <vector>

#include <hfcomm/call/device_call.hpp>

namespace hfcomm {

namespace detail {

/// Without `counts` all parts are as long as `in`.
template <class In, class Out, class How>
auto device_gather(In in, Out out, std::span<const std::size_t> counts, bool uneven, How how, int root,
                   const process_group& group, std::source_location where) {
  using T = typename In::value_type;
  auto call = uneven ? uneven_call<T>("device gather", movement::to_root, in.size(), root, where)
                     : buffer_call<T>("device gather", movement::to_root, in.size(), root, where);
  const bool leads = group.rank() == root;
  const uneven_parts parts{part_lengths(in.size()),
                           leads ? part_lengths(counts, out.size(), "the root's output") : part_lengths(0), sizeof(T),
                           leads};
  running_device_call running(group, call, uneven ? &parts : nullptr);
  running.require_root();
  require_device_memory(running, in);
  std::vector<std::size_t> bytes;
  if (group.rank() == root) {
    require_device_memory(running, out);
    if (uneven) {
      parts.require(running, root, group.size());
      bytes = in_bytes(counts, sizeof(T));
    } else {
      running.require(is_one_for_each(out.size(), in.size(), group.size()), [&] {
        return "the root's output has " + std::to_string(out.size()) + " elements, but " +
               std::to_string(group.size()) + " ranks contribute " + std::to_string(in.size()) + " each";
      });
      bytes = equal_counts(in.size_bytes(), group.size());
    }
    const auto to = device_bytes(out);
    require_apart(running, to, device_bytes(in), parts_of(to, bytes, 1)[static_cast<std::size_t>(root)]);
  }
  return running.put(how, memory_of(in), [&](device_engine& engine, stream_ref stream) {
    engine.pass(call, device_parts(in, root), device_parts(out, bytes), stream);
  });
}

}  // namespace detail

/// Every rank's device memory, in rank order, in the root's `out`, which is `group.size()` times as long as `in`;
/// elsewhere `out` is not looked at and may be empty. Any trivially copyable type. Put on the stream; returns at once.
template <device_range In, writable_device_range Out>
  requires std::same_as<device_value_t<In>, device_value_t<Out>>
void gather(const In& in, Out&& out, stream_ref stream, int root = 0, const process_group& group = world(),
            std::source_location where = std::source_location::current()) {
  detail::device_gather(as_device_span(in), as_device_span(out), {}, false, detail::on_stream{stream}, root, group,
                        where);
}

/// Parts of different lengths: the root gets `counts[r]` elements from rank r; `counts` is looked at on the root only.
template <device_range In, writable_device_range Out>
  requires std::same_as<device_value_t<In>, device_value_t<Out>>
void gather(const In& in, Out&& out, std::span<const std::size_t> counts, stream_ref stream, int root = 0,
            const process_group& group = world(), std::source_location where = std::source_location::current()) {
  detail::device_gather(as_device_span(in), as_device_span(out), counts, true, detail::on_stream{stream}, root, group,
                        where);
}

template <device_range In, writable_device_range Out>
  requires std::same_as<device_value_t<In>, device_value_t<Out>>
device_work gather_async(const In& in, Out&& out, stream_ref stream, int root = 0, const process_group& group = world(),
                         std::source_location where = std::source_location::current()) {
  return detail::device_gather(as_device_span(in), as_device_span(out), {}, false, detail::on_own_stream{stream}, root,
                               group, where);
}

template <device_range In, writable_device_range Out>
  requires std::same_as<device_value_t<In>, device_value_t<Out>>
device_work gather_async(const In& in, Out&& out, std::span<const std::size_t> counts, stream_ref stream, int root = 0,
                         const process_group& group = world(),
                         std::source_location where = std::source_location::current()) {
  return detail::device_gather(as_device_span(in), as_device_span(out), counts, true, detail::on_own_stream{stream},
                               root, group, where);
}

}  // namespace hfcomm
