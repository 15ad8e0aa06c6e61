// SPDX-License-Identifier: MIT
#pragma once

#include <source_location>
#include <span>
#include <string>

#include <hfcomm/call/device_call.hpp>

/// What messages between devices have in common.
namespace hfcomm::detail {

/// `from` is null where nothing is sent, `to` where nothing is received.
template <class How>
auto device_message(operation_name name, movement pattern, const device_part* out, const device_part* in,
                    std::size_t count, How how, const process_group& group, std::source_location where) {
  operation call{.name = name, .pattern = pattern, .content = payload::buffer, .where = where};
  call.root = out != nullptr ? out->rank : in->rank;
  call.bytes = out != nullptr ? out->bytes : in->bytes;
  running_device_call running(group, call);
  for (const device_part* part : {out, in}) {
    if (part == nullptr) {
      continue;
    }
    running.require(part->rank >= 0 && part->rank < group.size(),
                    [&] { return engines::no_such_rank("rank", part->rank, group.size()); });
    running.require((out != nullptr && in != nullptr) || part->rank != group.rank(), [&] {
      return "a message to or from oneself would wait for itself; send_receive does both at once";
    });
    running.require(part->bytes == 0 || part->data != nullptr,
                    [&] { return "a buffer of " + std::to_string(count) + " elements is at address 0"; });
  }
  const auto parts = [](const device_part* part) {
    return part != nullptr ? std::span<const device_part>(part, 1) : std::span<const device_part>();
  };
  const device_part& any = out != nullptr ? *out : *in;
  return running.put(how, {any.data, any.bytes}, [&](device_engine& engine, stream_ref stream) {
    engine.pass(call, parts(out), parts(in), stream);
  });
}

}  // namespace hfcomm::detail
