// SPDX-License-Identifier: MIT
#pragma once

#include <source_location>

#include <hfcomm/collectives/detail/device_message.hpp>
#include <hfcomm/collectives/detail/message.hpp>

namespace hfcomm {

/// Sends an object to one rank and waits until that rank has taken it. The receiver calls `recv<T>` with the same tag;
/// where it receives something else with this tag, both throw mismatch_error. Messages with one tag between two ranks
/// arrive in the order in which they were sent.
///
/// Throws usage_error for a destination that the group does not have, a negative tag, and oneself (see
/// `send_receive`); peer_error and timeout_error as collectives do. Two ranks that both send first wait for each other
/// until their deadline: `send_receive` does not.
template <serializable T>
void send(const T& value, int destination, const process_group& group = world(), int tag = 0,
          std::source_location where = std::source_location::current()) {
  const auto message =
      detail::outgoing_object("send", value, destination, detail::partner::other_rank, group, tag, where);
  detail::pass(group, {&message, 1});
}

/// Sends a buffer's elements to one rank, which receives them in a buffer of the same length and type.
template <buffer_view R>
void send(const R& data, int destination, const process_group& group = world(), int tag = 0,
          std::source_location where = std::source_location::current()) {
  const auto message =
      detail::outgoing_buffer("send", data, destination, detail::partner::other_rank, group, tag, where);
  detail::pass(group, {&message, 1});
}

/// Starts to send an object, which may be changed at once. The work is done when the receiver has it. Up to 64 messages
/// of a rank are on offer at a time; those after them wait for earlier ones to be received.
template <serializable T>
work<void> isend(const T& value, int destination, const process_group& group = world(), int tag = 0,
                 std::source_location where = std::source_location::current()) {
  const auto message =
      detail::outgoing_object("isend", value, destination, detail::partner::any_rank, group, tag, where);
  return detail::start_message(group, message, [](const transfer& /*sent*/) {});
}

/// Starts to send a buffer's elements, which must stay untouched until the work is done.
template <buffer_view R>
  requires lasting_buffer<R>
work<void> isend(R&& data, int destination, const process_group& group = world(), int tag = 0,
                 std::source_location where = std::source_location::current()) {
  const auto message =
      detail::outgoing_buffer("isend", data, destination, detail::partner::any_rank, group, tag, where);
  return detail::start_message(group, message, [](const transfer& /*sent*/) {});
}

/// Sends device memory to one rank, whose stream receives as many elements of the same type: nothing compares them. Put
/// on the stream; returns at once. Two ranks that both send first wait for each other on their devices: use
/// `send_receive`, or an nccl_group_scope. The group must have been connected (`connect_device`) by all its ranks.
template <device_range R>
void send(const R& data, stream_ref stream, int destination, const process_group& group = world(),
          std::source_location where = std::source_location::current()) {
  const auto part = detail::message_part(as_device_span(data), destination);
  detail::device_message("device send", movement::send, &part, nullptr, data.size(), detail::on_stream{stream}, group,
                         where);
}

/// The same on a stream of the group's own, behind what is on `stream` by now.
template <device_range R>
device_work isend(const R& data, stream_ref stream, int destination, const process_group& group = world(),
                  std::source_location where = std::source_location::current()) {
  const auto part = detail::message_part(as_device_span(data), destination);
  return detail::device_message("device isend", movement::send, &part, nullptr, data.size(),
                                detail::on_own_stream{stream}, group, where);
}

}  // namespace hfcomm
