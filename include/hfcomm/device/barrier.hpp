// SPDX-License-Identifier: MIT
#pragma once

#include <source_location>

#include <hfcomm/call/device_call.hpp>

namespace hfcomm {

namespace detail {

template <class How>
auto device_barrier(How how, const process_group& group, std::source_location where) {
  operation call{.name = "device barrier", .where = where};
  running_device_call running(group, call);
  return running.put(how, {}, [&](device_engine& engine, stream_ref stream) { engine.meet(call, stream); });
}

}  // namespace detail

/// What follows on the stream begins once the streams of all ranks have come to their barriers. Returns at once: the
/// host does not wait.
inline void barrier(stream_ref stream, const process_group& group = world(),
                    std::source_location where = std::source_location::current()) {
  detail::device_barrier(detail::on_stream{stream}, group, where);
}

inline device_work barrier_async(stream_ref stream, const process_group& group = world(),
                                 std::source_location where = std::source_location::current()) {
  return detail::device_barrier(detail::on_own_stream{stream}, group, where);
}

}  // namespace hfcomm
