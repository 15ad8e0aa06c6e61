// SPDX-License-Identifier: MIT
#pragma once

#include <source_location>
#include <span>
#include <string>
#include <vector>

#include <hfcomm/call/device_call.hpp>

namespace hfcomm {

namespace detail {

/// Without `counts` all parts are as long as `out`.
template <class In, class Out, class How>
auto device_scatter(In in, Out out, std::span<const std::size_t> counts, bool uneven, How how, int root,
                    const process_group& group, std::source_location where) {
  using T = typename In::value_type;
  auto call = uneven ? uneven_call<T>("device scatter", movement::from_root, out.size(), root, where)
                     : buffer_call<T>("device scatter", movement::from_root, out.size(), root, where);
  const bool leads = group.rank() == root;
  const uneven_parts parts{leads ? part_lengths(counts, in.size(), "the root's input") : part_lengths(0),
                           part_lengths(out.size()), sizeof(T), leads};
  running_device_call running(group, call, uneven ? &parts : nullptr);
  running.require_root();
  require_device_memory(running, out);
  std::vector<std::size_t> bytes;
  if (group.rank() == root) {
    require_device_memory(running, in);
    if (uneven) {
      parts.require(running, root, group.size());
      bytes = in_bytes(counts, sizeof(T));
    } else {
      running.require(is_one_for_each(in.size(), out.size(), group.size()), [&] {
        return "the root's input has " + std::to_string(in.size()) + " elements, but " + std::to_string(group.size()) +
               " ranks want " + std::to_string(out.size()) + " each";
      });
      bytes = equal_counts(out.size_bytes(), group.size());
    }
    require_apart(running, device_bytes(in), device_bytes(out),
                  parts_of(device_bytes(in), bytes, 1)[static_cast<std::size_t>(root)]);
  }
  return running.put(how, memory_of(out), [&](device_engine& engine, stream_ref stream) {
    engine.pass(call, device_parts(in, bytes), device_parts(out, root), stream);
  });
}

}  // namespace detail

/// Gives each rank its part of the root's device memory `in`, which is `group.size()` times as long as `out`; elsewhere
/// `in` is not looked at and may be empty. Any trivially copyable type. Put on the stream; returns at once.
template <device_range In, writable_device_range Out>
  requires std::same_as<device_value_t<In>, device_value_t<Out>>
void scatter(const In& in, Out&& out, stream_ref stream, int root = 0, const process_group& group = world(),
             std::source_location where = std::source_location::current()) {
  detail::device_scatter(as_device_span(in), as_device_span(out), {}, false, detail::on_stream{stream}, root, group,
                         where);
}

/// Parts of different lengths: rank r gets `counts[r]` elements; `counts` is looked at on the root only.
template <device_range In, writable_device_range Out>
  requires std::same_as<device_value_t<In>, device_value_t<Out>>
void scatter(const In& in, Out&& out, std::span<const std::size_t> counts, stream_ref stream, int root = 0,
             const process_group& group = world(), std::source_location where = std::source_location::current()) {
  detail::device_scatter(as_device_span(in), as_device_span(out), counts, true, detail::on_stream{stream}, root, group,
                         where);
}

template <device_range In, writable_device_range Out>
  requires std::same_as<device_value_t<In>, device_value_t<Out>>
device_work scatter_async(const In& in, Out&& out, stream_ref stream, int root = 0,
                          const process_group& group = world(),
                          std::source_location where = std::source_location::current()) {
  return detail::device_scatter(as_device_span(in), as_device_span(out), {}, false, detail::on_own_stream{stream}, root,
                                group, where);
}

template <device_range In, writable_device_range Out>
  requires std::same_as<device_value_t<In>, device_value_t<Out>>
device_work scatter_async(const In& in, Out&& out, std::span<const std::size_t> counts, stream_ref stream, int root = 0,
                          const process_group& group = world(),
                          std::source_location where = std::source_location::current()) {
  return detail::device_scatter(as_device_span(in), as_device_span(out), counts, true, detail::on_own_stream{stream},
                                root, group, where);
}

}  // namespace hfcomm
