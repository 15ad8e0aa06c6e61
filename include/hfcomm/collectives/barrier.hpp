// SPDX-License-Identifier: MIT
#pragma once

#include <source_location>

#include <hfcomm/call/async.hpp>
#include <hfcomm/call/device_call.hpp>

namespace hfcomm {

/// Returns once every rank of the group has called it. (detectron2's `synchronize`, torch's `barrier`; no GPU is
/// asked.)
inline void barrier(const process_group& group = world(),
                    std::source_location where = std::source_location::current()) {
  operation call{.name = "barrier", .where = where};
  detail::running_call running(group, call);
  no_receiver nothing;
  running.engine().exchange(call, {}, nothing);
}

/// Starts to wait for all ranks: the work is done when every rank has started it.
inline work<void> barrier_async(const process_group& group = world(),
                                std::source_location where = std::source_location::current()) {
  return detail::start("barrier", group, where, [group, where] { barrier(group, where); });
}

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
