// SPDX-License-Identifier: MIT
#pragma once

#include <source_location>

#include <hfcomm/call/device_call.hpp>

namespace hfcomm {

namespace detail {

template <class Data, class How>
auto device_broadcast(Data data, How how, int root, const process_group& group, std::source_location where) {
  auto call = buffer_call<typename Data::value_type>("device broadcast", movement::from_root, data.size(), root, where);
  running_device_call running(group, call);
  running.require_root();
  require_device_memory(running, data);
  return running.put(how, memory_of(data), [&](device_engine& engine, stream_ref stream) {
    engine.broadcast(call, data.data(), data.data(), data.size_bytes(), stream);
  });
}

}  // namespace detail

/// Gives every rank the root's device memory, of any trivially copyable type, in place and of the same length
/// everywhere. Put on the stream; returns at once.
template <writable_device_range R>
void broadcast(R&& data, stream_ref stream, int root = 0, const process_group& group = world(),
               std::source_location where = std::source_location::current()) {
  detail::device_broadcast(as_device_span(data), detail::on_stream{stream}, root, group, where);
}

/// The same on a stream of the group's own, behind what is on `stream` by now.
template <writable_device_range R>
device_work broadcast_async(R&& data, stream_ref stream, int root = 0, const process_group& group = world(),
                            std::source_location where = std::source_location::current()) {
  return detail::device_broadcast(as_device_span(data), detail::on_own_stream{stream}, root, group, where);
}

}  // namespace hfcomm
