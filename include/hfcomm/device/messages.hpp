// SPDX-License-Identifier: MIT
#pragma once

#include <hfcomm/core/call_site.hpp>
#include <hfcomm/device/detail/device_message.hpp>
#include <hfcomm/group/session.hpp>

namespace hfcomm {

/// Sends device memory to one rank, which receives as many elements of the same type; nothing compares them. The group
/// must have been connected (`connect_device`) by all its ranks.
///
/// Runs on the stream, and returns at once. Two ranks that both send first wait for each other on their devices for
/// ever: use `send_receive`, or an nccl_group_scope.
///
/// Throws usage_error for a rank that the group does not have, for a message to oneself, and for memory of a device
/// that the group is not connected on. Throws engine_error where NCCL or the CUDA runtime fails.
template <device_range R>
void send(const R& data, stream_ref stream, int destination, const process_group& group = world(),
          call_site where = call_site::current()) {
  const detail::message_side part{detail::elements_of(data), destination};
  detail::device_message("device send", engines::movement::send, &part, nullptr, detail::on_stream{stream}, group,
                         where);
}

/// The same on a stream of the group's own, which waits for the work already on `stream`.
template <device_range R>
device_work isend(const R& data, stream_ref stream, int destination, const process_group& group = world(),
                  call_site where = call_site::current()) {
  const detail::message_side part{detail::elements_of(data), destination};
  return detail::device_message("device isend", engines::movement::send, &part, nullptr, detail::on_own_stream{stream},
                                group, where);
}

/// Receives the next device memory that one rank sends to this one: as many elements of the same type. Runs on the
/// stream, and returns at once. Throws as `send` does.
template <writable_device_range R>
void recv(R&& data, stream_ref stream, int source, const process_group& group = world(),
          call_site where = call_site::current()) {
  const detail::message_side part{detail::elements_of(data), source};
  detail::device_message("device recv", engines::movement::receive, nullptr, &part, detail::on_stream{stream}, group,
                         where);
}

/// The same on a stream of the group's own, which waits for the work already on `stream`.
template <writable_device_range R>
device_work irecv(R&& data, stream_ref stream, int source, const process_group& group = world(),
                  call_site where = call_site::current()) {
  const detail::message_side part{detail::elements_of(data), source};
  return detail::device_message("device irecv", engines::movement::receive, nullptr, &part,
                                detail::on_own_stream{stream}, group, where);
}

/// Sends device memory to one rank and receives other memory from a rank, at the same time. Both may be the same rank,
/// or this one. Runs on the stream, and returns at once. Throws as `send` does, but for a message to oneself.
template <device_range Out, writable_device_range In>
void send_receive(const Out& data, int destination, In&& into, int source, stream_ref stream,
                  const process_group& group = world(), call_site where = call_site::current()) {
  const detail::message_side out{detail::elements_of(data), destination};
  const detail::message_side in{detail::elements_of(into), source};
  detail::device_message("device send_receive", engines::movement::send, &out, &in, detail::on_stream{stream}, group,
                         where);
}

}  // namespace hfcomm
