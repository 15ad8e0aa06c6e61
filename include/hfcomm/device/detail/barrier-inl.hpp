// SPDX-License-Identifier: MIT
#pragma once

#include <hfcomm/core/config.hpp>
#include <hfcomm/device/barrier.hpp>
#include <hfcomm/device/detail/device_call.hpp>

namespace hfcomm {

namespace detail {

template <class How>
auto device_barrier(How how, const process_group& group, std::source_location where) {
  operation call{.name = "device barrier", .where = where};
  running_device_call running(group, call);
  return running.put(how, {}, [&](device_engine& engine, stream_ref stream) { engine.barrier(call, stream); });
}

}  // namespace detail

HFCOMM_INLINE void barrier(stream_ref stream, const process_group& group, std::source_location where) {
  detail::device_barrier(detail::on_stream{stream}, group, where);
}

HFCOMM_INLINE device_work barrier_async(stream_ref stream, const process_group& group, std::source_location where) {
  return detail::device_barrier(detail::on_own_stream{stream}, group, where);
}

}  // namespace hfcomm
