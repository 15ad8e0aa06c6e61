// SPDX-License-Identifier: MIT
#pragma once

#include <source_location>
#include <span>

#include <hfcomm/device/detail/device_moves.hpp>

namespace hfcomm {

/// Gathers every rank's device memory, in rank order, into the root's `out`, which is `group.size()` times as long as
/// `in`. The other ranks' `out` is ignored and may be empty. Any trivially copyable type.
///
/// Returns at once. On the stream it runs after the earlier work and before the later work.
///
/// Throws usage_error for a wrong length or root, and for memory of a device that the group is not connected on. The
/// other ranks then get peer_error where they wait (`synchronize`). Throws engine_error where NCCL or the CUDA runtime
/// fails.
template <device_range In, writable_device_range Out>
  requires std::same_as<device_value_t<In>, device_value_t<Out>>
void gather(const In& in, Out&& out, stream_ref stream, int root = 0, const process_group& group = world(),
            std::source_location where = std::source_location::current()) {
  detail::device_gather(detail::buffer_call<device_value_t<In>>("device gather", engines::movement::to_root,
                                                                as_device_span(in).size(), root, where),
                        detail::device_elements(in), detail::device_elements(out), detail::on_stream{stream}, group);
}

/// The same with parts of different lengths: the root gets `counts[r]` elements from rank r. The other ranks' `counts`
/// is ignored.
template <device_range In, writable_device_range Out>
  requires std::same_as<device_value_t<In>, device_value_t<Out>>
void gather(const In& in, Out&& out, std::span<const std::size_t> counts, stream_ref stream, int root = 0,
            const process_group& group = world(), std::source_location where = std::source_location::current()) {
  detail::device_gather(detail::uneven_call<device_value_t<In>>("device gather", engines::movement::to_root,
                                                                as_device_span(in).size(), root, where),
                        detail::device_elements(in), detail::device_elements(out), counts, detail::on_stream{stream},
                        group);
}

/// The same on a stream of the group's own, which waits for the work already on `stream`. The following work on
/// `stream` does not wait for it.
template <device_range In, writable_device_range Out>
  requires std::same_as<device_value_t<In>, device_value_t<Out>>
device_work gather_async(const In& in, Out&& out, stream_ref stream, int root = 0, const process_group& group = world(),
                         std::source_location where = std::source_location::current()) {
  return detail::device_gather(detail::buffer_call<device_value_t<In>>("device gather", engines::movement::to_root,
                                                                       as_device_span(in).size(), root, where),
                               detail::device_elements(in), detail::device_elements(out), detail::on_own_stream{stream},
                               group);
}

/// The same with parts of different lengths, on a stream of the group's own.
template <device_range In, writable_device_range Out>
  requires std::same_as<device_value_t<In>, device_value_t<Out>>
device_work gather_async(const In& in, Out&& out, std::span<const std::size_t> counts, stream_ref stream, int root = 0,
                         const process_group& group = world(),
                         std::source_location where = std::source_location::current()) {
  return detail::device_gather(detail::uneven_call<device_value_t<In>>("device gather", engines::movement::to_root,
                                                                       as_device_span(in).size(), root, where),
                               detail::device_elements(in), detail::device_elements(out), counts,
                               detail::on_own_stream{stream}, group);
}

}  // namespace hfcomm
