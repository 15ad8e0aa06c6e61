// SPDX-License-Identifier: MIT
#pragma once

#include <source_location>
#include <span>

#include <hfcomm/device/detail/device_call.hpp>

/// Checks and start of messages between devices.
namespace hfcomm::detail {

/// The elements that go to a rank, or come from one.
struct message_side {
  const_elements data;
  int rank;
};

/// Throws usage_error for a rank that the group does not have, and for missing memory. A message to this rank itself
/// must both send and receive.
void check_device_message(checked_call& running, const message_side* out, const message_side* in);

/// Starts a message. `out` is null where nothing is sent, `in` is null where nothing is received.
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
