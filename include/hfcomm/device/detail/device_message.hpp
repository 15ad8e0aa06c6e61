// SPDX-License-Identifier: MIT
#pragma once

#include <source_location>
#include <span>

#include <hfcomm/device/detail/device_call.hpp>

/// What messages between devices have in common.
namespace hfcomm::detail {

/// The elements that go to, or come from, another rank.
struct message_side {
  const_elements data;
  int rank;
};

/// Throws usage_error unless the ranks are of the group, and there is memory. A message to or from oneself has two
/// sides.
void check_device_message(checked_call& running, const message_side* out, const message_side* in);

/// `out` is null where nothing is sent, `in` where nothing is received.
template <class How>
auto device_message(operation_name name, movement pattern, const message_side* out, const message_side* in, How how,
                    const process_group& group, std::source_location where) {
  const message_side& any = out != nullptr ? *out : *in;
  operation call{.name = name, .pattern = pattern, .content = payload::buffer, .where = where};
  call.root = any.rank;
  call.bytes = any.data.count * any.data.width;
  running_device_call running(group, call);
  check_device_message(running, out, in);
  const device_part parts[2] = {message_part(any.data, any.rank),
                                in != nullptr ? message_part(in->data, in->rank) : device_part()};
  return running.put(how, memory_of(any.data), [&](device_engine& engine, stream_ref stream) {
    engine.exchange_parts(call, std::span(parts, out != nullptr ? 1 : 0), std::span(parts + 1, in != nullptr ? 1 : 0),
                          stream);
  });
}

}  // namespace hfcomm::detail
