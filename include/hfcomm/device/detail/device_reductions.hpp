// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <span>

#include <hfcomm/call/uneven_parts.hpp>
#include <hfcomm/device/detail/device_call.hpp>

/// The operations that reduce elements on devices, without the elements' type. They have the form of the operations in
/// device_moves.hpp.
namespace hfcomm::detail {

template <class How>
auto device_all_reduce(operation call, const_elements in, elements out, How how, const process_group& group) {
  running_device_call running(group, call);
  check_all_reduce(running, in, out);
  return running.put(how, memory_of(out), [&](device_engine& engine, stream_ref stream) {
    engine.reduce(call, in.data, out.data, in.count, stream);
  });
}

template <class How>
auto device_reduce(operation call, const_elements in, elements out, How how, const process_group& group) {
  running_device_call running(group, call);
  check_reduce(running, in, out);
  return running.put(how, memory_of(in), [&](device_engine& engine, stream_ref stream) {
    engine.reduce(call, in.data, out.data, in.count, stream);
  });
}

template <class How>
auto device_reduce_scatter(operation call, const_elements in, elements out, How how, const process_group& group) {
  running_device_call running(group, call);
  check_reduce_scatter(running, in, out);
  return running.put(how, memory_of(in), [&](device_engine& engine, stream_ref stream) {
    engine.reduce_scatter(call, in.data, out.data, out.count, stream);
  });
}

template <class How>
auto device_reduce_scatter(operation call, const_elements in, elements out, std::span<const std::size_t> counts,
                           How how, const process_group& group) {
  const uneven_parts parts{part_lengths(counts, in.count, "the input"), part_lengths(out.count), in.width};
  running_device_call running(group, call, &parts);
  check_reduce_scatter(running, in, out, counts);
  return running.put(how, memory_of(in), [&](device_engine& engine, stream_ref stream) {
    engine.reduce_scatter(call, in.data, out.data, counts, stream);
  });
}

}  // namespace hfcomm::detail
