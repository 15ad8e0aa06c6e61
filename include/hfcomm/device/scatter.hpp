// SPDX-License-Identifier: MIT
#pragma once

#include <source_location>
#include <span>

#include <hfcomm/device/detail/device_moves.hpp>

namespace hfcomm {

/// Gives each rank its part of the root's device memory `in`, which is `group.size()` times as long as `out`. The other
/// ranks' `in` is ignored and may be empty. Any trivially copyable type.
///
/// Returns at once. On the stream it runs after the earlier work and before the later work.
///
/// Throws usage_error for a wrong length or root, and for memory of a device that the group is not connected on. The
/// other ranks then get peer_error where they wait (`synchronize`). Throws engine_error where NCCL or the CUDA runtime
/// fails.
template <device_range In, writable_device_range Out>
  requires std::same_as<device_value_t<In>, device_value_t<Out>>
void scatter(const In& in, Out&& out, stream_ref stream, int root = 0, const process_group& group = world(),
             std::source_location where = std::source_location::current()) {
  detail::device_scatter(detail::buffer_call<device_value_t<In>>("device scatter", engines::movement::from_root,
                                                                 as_device_span(out).size(), root, where),
                         detail::device_elements(in), detail::device_elements(out), detail::on_stream{stream}, group);
}

/// The same with parts of different lengths: rank r gets `counts[r]` elements. The other ranks' `counts` is ignored.
template <device_range In, writable_device_range Out>
  requires std::same_as<device_value_t<In>, device_value_t<Out>>
void scatter(const In& in, Out&& out, std::span<const std::size_t> counts, stream_ref stream, int root = 0,
             const process_group& group = world(), std::source_location where = std::source_location::current()) {
  detail::device_scatter(detail::uneven_call<device_value_t<In>>("device scatter", engines::movement::from_root,
                                                                 as_device_span(out).size(), root, where),
                         detail::device_elements(in), detail::device_elements(out), counts, detail::on_stream{stream},
                         group);
}

/// The same on a stream of the group's own, which waits for the work already on `stream`. The following work on
/// `stream` does not wait for it.
template <device_range In, writable_device_range Out>
  requires std::same_as<device_value_t<In>, device_value_t<Out>>
device_work scatter_async(const In& in, Out&& out, stream_ref stream, int root = 0,
                          const process_group& group = world(),
                          std::source_location where = std::source_location::current()) {
  return detail::device_scatter(detail::buffer_call<device_value_t<In>>("device scatter", engines::movement::from_root,
                                                                        as_device_span(out).size(), root, where),
                                detail::device_elements(in), detail::device_elements(out),
                                detail::on_own_stream{stream}, group);
}

/// The same with parts of different lengths, on a stream of the group's own.
template <device_range In, writable_device_range Out>
  requires std::same_as<device_value_t<In>, device_value_t<Out>>
device_work scatter_async(const In& in, Out&& out, std::span<const std::size_t> counts, stream_ref stream, int root = 0,
                          const process_group& group = world(),
                          std::source_location where = std::source_location::current()) {
  return detail::device_scatter(detail::uneven_call<device_value_t<In>>("device scatter", engines::movement::from_root,
                                                                        as_device_span(out).size(), root, where),
                                detail::device_elements(in), detail::device_elements(out), counts,
                                detail::on_own_stream{stream}, group);
}

}  // namespace hfcomm
