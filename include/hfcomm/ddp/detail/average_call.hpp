// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <source_location>
#include <span>
#include <utility>
#include <vector>

#include <hfcomm/call/typed_calls.hpp>
#include <hfcomm/collectives/detail/buffer_collectives.hpp>
#include <hfcomm/core/element_type.hpp>
#include <hfcomm/core/reduce_op.hpp>
#include <hfcomm/ddp/communication_hook.hpp>
#include <hfcomm/ddp/detail/marks.hpp>
#include <hfcomm/device/detail/device_call.hpp>
#include <hfcomm/engine/operation.hpp>
#include <hfcomm/engine/reduction/kernel.hpp>
#include <hfcomm/group/detail/running_call.hpp>
#include <hfcomm/group/process_group.hpp>

namespace hfcomm::detail {

/// An average of gradients, wherever they lie.
struct gradient_average {
  element_type type;
  reduction_kernel kernel;  // null on a device
  std::uint64_t pass;       // ranks in different passes must not average with each other
};

/// Returns the operation that averages `bytes` of gradients.
[[nodiscard]] inline operation average_call(const gradient_average& wanted, std::size_t bytes,
                                            std::source_location where) {
  return {.name = "distributed_data_parallel",
          .pattern = movement::to_all,
          .content = payload::buffer,
          .element = wanted.type,
          .reduces = true,
          .op = reduce_op::average,
          .kernel = wanted.kernel,
          .bytes = bytes,
          .tag = wanted.pass,
          .where = where};
}

/// Returns the operation by which the ranks tell each other that a pass has come to its end. It moves nothing.
[[nodiscard]] inline operation end_of_pass_call(std::uint64_t pass, std::source_location where) {
  return {.name = "distributed_data_parallel", .tag = pass, .where = where};
}

/// Returns the operation in whose place this rank announces that its pass failed.
[[nodiscard]] inline operation failed_pass_call(std::source_location where) {
  return reduction_call_without_kernel<float>("distributed_data_parallel", movement::to_all, 0, -1, reduce_op::average,
                                              where);
}

/// Makes `used` tell for each parameter whether any rank used it. Collective over the host plane.
inline void combine_usage(const process_group& group, std::vector<std::uint8_t>& used, std::uint64_t pass,
                          std::source_location where) {
  operation call = reduction_call<std::uint8_t>("distributed_data_parallel", movement::to_all, used.size(), -1,
                                                reduce_op::max, where);
  call.tag = pass;
  running_call running(group, call);
  const auto bytes = std::as_writable_bytes(std::span(used));
  running.engine().reduce(call, bytes, bytes);
}

/// Gives every rank rank 0's order of the parameters. Collective over the host plane.
inline void exchange_order(const process_group& group, order_agreement& wanted, std::size_t parameters,
                           std::uint64_t pass, std::source_location where) {
  constexpr std::uint32_t unknown = 0xFFFF'FFFF;
  std::vector<std::uint32_t> order = wanted.order;
  order.resize(parameters, unknown);
  operation call = buffer_call<std::uint32_t>("distributed_data_parallel", movement::from_root, order.size(), 0, where);
  call.tag = pass;
  broadcast_buffer(operation(call), writable_elements_of(order), group);
  wanted.is_reached = order.front() != unknown;
  if (wanted.is_reached) {
    wanted.order = std::move(order);
  }
}

/// Puts the average of a bucket in device memory on its stream.
inline void put_device_average(const gradient_bucket::description& bucket) {
  operation call = average_call({bucket.type, nullptr, bucket.pass}, bucket.data.size(), bucket.where);
  call.name = "device distributed_data_parallel";
  if (bucket.divisor != bucket.group.size()) {
    set_reduction(call, reduce_op::premultiplied_sum(1.0 / bucket.divisor));
  }
  running_device_call running(bucket.group, call);
  std::byte* const data = bucket.data.data();
  running.put(on_stream{*bucket.stream}, {data, bucket.data.size()}, [&](device_engine& engine, stream_ref stream) {
    engine.reduce(call, data, data, bucket.data.size() / size_of(bucket.type), stream);
  });
}

}  // namespace hfcomm::detail
