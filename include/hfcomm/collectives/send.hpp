// SPDX-License-Identifier: MIT
#pragma once

#include <hfcomm/call/refused_calls.hpp>
#include <hfcomm/collectives/detail/message.hpp>
#include <hfcomm/collectives/detail/message_place.hpp>
#include <hfcomm/core/call_site.hpp>

namespace hfcomm {

/// Sends an object to one rank and waits until that rank has received it. The receiver calls `recv<T>` with the same
/// tag. Where it receives another type with this tag, both throw mismatch_error. Messages with one tag between two
/// ranks arrive in the order in which they were sent. Here and in all functions on messages, `first` and `second` are
/// the tag (default 0) and the group (default world()), in any order, each of which may be left out.
///
/// Throws usage_error for a destination that the group does not have, a negative tag, two tags, two groups, and oneself
/// (see `send_receive`).
/// Throws peer_error and timeout_error as collectives do. Two ranks that both send first wait for each other until
/// their deadline: `send_receive` does not.
template <serializable T>
void send(const T& value, int destination, detail::group_or_tag first = {}, detail::group_or_tag second = {},
          call_site where = call_site::current()) {
  const auto& [group, tag] = detail::message_place(first, second, where);
  const auto message =
      detail::outgoing_object("send", value, destination, detail::allowed_peer::other_rank, group, tag, where);
  detail::complete_message(group, message);
}

/// Sends a buffer's elements to one rank, which receives them in a buffer of the same length and type.
template <buffer_view R>
void send(const R& data, int destination, detail::group_or_tag first = {}, detail::group_or_tag second = {},
          call_site where = call_site::current()) {
  const auto& [group, tag] = detail::message_place(first, second, where);
  const auto message =
      detail::outgoing_buffer("send", data, destination, detail::allowed_peer::other_rank, group, tag, where);
  detail::complete_message(group, message);
}

/// Starts to send an object, which may be changed at once. The work is done when the receiver has it. Any number of
/// messages may be pending.
template <serializable T>
work<void> isend(const T& value, int destination, detail::group_or_tag first = {}, detail::group_or_tag second = {},
                 call_site where = call_site::current()) {
  const auto& [group, tag] = detail::message_place(first, second, where);
  const auto message =
      detail::outgoing_object("isend", value, destination, detail::allowed_peer::any_rank, group, tag, where);
  return detail::start_message(group, message, [](const engines::transfer& /*sent*/) {});
}

/// Starts to send a buffer's elements, which must stay untouched until the work is done.
template <buffer_view R>
  requires lasting_buffer<R>
work<void> isend(R&& data, int destination, detail::group_or_tag first = {}, detail::group_or_tag second = {},
                 call_site where = call_site::current()) {
  const auto& [group, tag] = detail::message_place(first, second, where);
  const auto message =
      detail::outgoing_buffer("isend", data, destination, detail::allowed_peer::any_rank, group, tag, where);
  return detail::start_message(group, message, [](const engines::transfer& /*sent*/) {});
}

// Calls that are refused; see call/refused_calls.hpp.

template <class... A, class Why = detail::reason_of<detail::refuse_object_or_view<A...>()>>
detail::refused_result send(A&&...) = delete;  // Why says the reason and what to do
void send(detail::device_memory_needs_hfcomm_nccl_hpp, ...) = delete;
template <class... A, class Why = detail::reason_of<detail::refuse_object_or_view_later<A...>()>>
detail::refused_result isend(A&&...) = delete;  // Why says the reason and what to do
void isend(detail::device_memory_needs_hfcomm_nccl_hpp, ...) = delete;

}  // namespace hfcomm
