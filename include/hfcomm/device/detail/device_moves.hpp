// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <hfcomm/call/uneven_parts.hpp>
#include <hfcomm/device/detail/device_call.hpp>

/// The operations that move elements between devices, without the elements' type. Each begins an operation of the
/// group, checks its arguments, and hands addresses to the engine. `call` has the name, the type and the root. `How` is
/// on_stream or on_own_stream; with the latter, a function returns a device_work.
namespace hfcomm::detail {

template <class How>
auto device_all_gather(operation call, const_elements in, elements out, How how, const process_group& group) {
  running_device_call running(group, call);
  check_all_gather(running, in, out);
  return running.put(how, memory_of(out), [&](device_engine& engine, stream_ref stream) {
    engine.all_gather(call, in.data, out.data, in.bytes().size(), stream);
  });
}

template <class How>
auto device_all_gather(operation call, const_elements in, elements out, std::span<const std::size_t> counts, How how,
                       const process_group& group) {
  const uneven_parts parts{part_lengths(in.count), part_lengths(counts, out.count, "the output"), in.width};
  running_device_call running(group, call, &parts);
  check_all_gather(running, in, out, counts);
  const auto bytes = byte_counts(counts, in.width);
  return running.put(how, memory_of(out), [&](device_engine& engine, stream_ref stream) {
    engine.all_gather(call, in.data, out.data, std::span<const std::size_t>(bytes), stream);
  });
}

template <class How>
auto device_all_to_all(operation call, const_elements in, elements out, How how, const process_group& group) {
  running_device_call running(group, call);
  check_all_to_all(running, in, out);
  const auto counts = equal_counts(in.count / static_cast<std::size_t>(group.size()), group.size());
  return running.put(how, memory_of(in), [&](device_engine& engine, stream_ref stream) {
    engine.exchange_parts(call, device_parts(in, counts), device_parts(out, counts), stream);
  });
}

template <class How>
auto device_all_to_all(operation call, const_elements in, std::span<const std::size_t> in_counts, elements out,
                       std::span<const std::size_t> out_counts, How how, const process_group& group) {
  const uneven_parts parts{part_lengths(in_counts, in.count, "the input"),
                           part_lengths(out_counts, out.count, "the output"), in.width};
  running_device_call running(group, call, &parts);
  check_all_to_all(running, in, in_counts, out, out_counts);
  return running.put(how, memory_of(in), [&](device_engine& engine, stream_ref stream) {
    engine.exchange_parts(call, device_parts(in, in_counts), device_parts(out, out_counts), stream);
  });
}

template <class How>
auto device_broadcast(operation call, elements data, How how, const process_group& group) {
  running_device_call running(group, call);
  check_broadcast(running, data);
  return running.put(how, memory_of(data), [&](device_engine& engine, stream_ref stream) {
    engine.broadcast(call, data.data, data.data, data.bytes().size(), stream);
  });
}

template <class How>
auto device_gather(operation call, const_elements in, elements out, How how, const process_group& group) {
  running_device_call running(group, call);
  check_gather(running, in, out);
  const auto counts = equal_counts(group.rank() == call.root ? in.count : 0, group.size());
  return running.put(how, memory_of(in), [&](device_engine& engine, stream_ref stream) {
    engine.exchange_parts(call, device_parts(in, call.root), device_parts(out, counts), stream);
  });
}

template <class How>
auto device_gather(operation call, const_elements in, elements out, std::span<const std::size_t> counts, How how,
                   const process_group& group) {
  const bool is_root = group.rank() == call.root;
  const uneven_parts parts{part_lengths(in.count),
                           is_root ? part_lengths(counts, out.count, "the root's output") : part_lengths(0), in.width,
                           is_root};
  running_device_call running(group, call, &parts);
  check_gather(running, in, out, counts);
  return running.put(how, memory_of(in), [&](device_engine& engine, stream_ref stream) {
    engine.exchange_parts(call, device_parts(in, call.root),
                          is_root ? device_parts(out, counts) : std::vector<device_part>(), stream);
  });
}

template <class How>
auto device_scatter(operation call, const_elements in, elements out, How how, const process_group& group) {
  running_device_call running(group, call);
  check_scatter(running, in, out);
  const auto counts = equal_counts(group.rank() == call.root ? out.count : 0, group.size());
  return running.put(how, memory_of(out), [&](device_engine& engine, stream_ref stream) {
    engine.exchange_parts(call, device_parts(in, counts), device_parts(out, call.root), stream);
  });
}

template <class How>
auto device_scatter(operation call, const_elements in, elements out, std::span<const std::size_t> counts, How how,
                    const process_group& group) {
  const bool is_root = group.rank() == call.root;
  const uneven_parts parts{is_root ? part_lengths(counts, in.count, "the root's input") : part_lengths(0),
                           part_lengths(out.count), in.width, is_root};
  running_device_call running(group, call, &parts);
  check_scatter(running, in, out, counts);
  return running.put(how, memory_of(out), [&](device_engine& engine, stream_ref stream) {
    engine.exchange_parts(call, is_root ? device_parts(in, counts) : std::vector<device_part>(),
                          device_parts(out, call.root), stream);
  });
}

}  // namespace hfcomm::detail
