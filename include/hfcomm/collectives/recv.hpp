// SPDX-License-Identifier: MIT
#pragma once

#include <hfcomm/call/refused_calls.hpp>
#include <hfcomm/call/refused_messages.hpp>
#include <hfcomm/collectives/detail/message.hpp>
#include <hfcomm/collectives/detail/message_place.hpp>
#include <hfcomm/core/call_site.hpp>

namespace hfcomm {

/// Receives the next object with this tag from one rank. Throws what `send` throws, and decode_error.
template <serializable T>
[[nodiscard]] T recv(int source, detail::group_or_tag first = {}, detail::group_or_tag second = {},
                     call_site where = call_site::current()) {
  const auto& [group, tag] = detail::message_place(first, second, where);
  const auto message = detail::incoming_object<T>("recv", source, detail::allowed_peer::other_rank, group, tag, where);
  detail::complete_message(group, message);
  return detail::take_value<T>(group, *message);
}

/// Receives the next object with this tag from any rank, and returns it with its sender. Ranks that send continuously
/// are served in turn. (The early torch.distributed's `recv(tensor)`, which returns the sender's rank.)
template <serializable T>
[[nodiscard]] received<T> recv(any_source_t /*source*/, detail::group_or_tag first = {},
                               detail::group_or_tag second = {}, call_site where = call_site::current()) {
  const auto& [group, tag] = detail::message_place(first, second, where);
  const auto message =
      detail::incoming_object<T>("recv", any_source, detail::allowed_peer::other_rank, group, tag, where);
  detail::complete_message(group, message);
  return detail::take_object<T>(group, *message);
}

/// Receives the next elements with this tag from one rank into a buffer of their number (mismatch_error on both sides
/// otherwise).
template <buffer_view R>
  requires writable_buffer<R>
void recv(R&& data, int source, detail::group_or_tag first = {}, detail::group_or_tag second = {},
          call_site where = call_site::current()) {
  const auto& [group, tag] = detail::message_place(first, second, where);
  const auto message =
      detail::incoming_buffer("recv", data, source, detail::allowed_peer::other_rank, group, tag, where);
  detail::complete_message(group, message);
}

/// Receives elements with this tag from any rank; returns the sender.
template <buffer_view R>
  requires writable_buffer<R>
[[nodiscard]] int recv(R&& data, any_source_t /*source*/, detail::group_or_tag first = {},
                       detail::group_or_tag second = {}, call_site where = call_site::current()) {
  const auto& [group, tag] = detail::message_place(first, second, where);
  const auto message =
      detail::incoming_buffer("recv", data, any_source, detail::allowed_peer::other_rank, group, tag, where);
  detail::complete_message(group, message);
  return message->source;
}

/// Starts to receive an object; the work's value is the object.
template <serializable T>
work<T> irecv(int source, detail::group_or_tag first = {}, detail::group_or_tag second = {},
              call_site where = call_site::current()) {
  const auto& [group, tag] = detail::message_place(first, second, where);
  const auto message = detail::incoming_object<T>("irecv", source, detail::allowed_peer::any_rank, group, tag, where);
  return detail::start_message(group, message,
                               [group](const engines::transfer& came) { return detail::take_value<T>(group, came); });
}

/// Starts to receive an object from any rank, this one included; the work's value is the object and its sender. Where
/// all other ranks have left, that is a peer_error only once a thread waits for the work.
template <serializable T>
work<received<T>> irecv(any_source_t /*source*/, detail::group_or_tag first = {}, detail::group_or_tag second = {},
                        call_site where = call_site::current()) {
  const auto& [group, tag] = detail::message_place(first, second, where);
  const auto message =
      detail::incoming_object<T>("irecv", any_source, detail::allowed_peer::any_rank, group, tag, where);
  return detail::start_message(group, message,
                               [group](const engines::transfer& came) { return detail::take_object<T>(group, came); });
}

/// Starts to receive elements into a buffer, which must stay until the work is done.
template <buffer_view R>
  requires writable_buffer<R> && lasting_buffer<R>
work<void> irecv(R&& data, int source, detail::group_or_tag first = {}, detail::group_or_tag second = {},
                 call_site where = call_site::current()) {
  const auto& [group, tag] = detail::message_place(first, second, where);
  const auto message =
      detail::incoming_buffer("irecv", data, source, detail::allowed_peer::any_rank, group, tag, where);
  return detail::start_message(group, message, [](const engines::transfer& /*came*/) {});
}

/// Starts to receive elements from any rank, this one included; the work's value is the sender. Where all other ranks
/// have left, that is a peer_error only once a thread waits for the work.
template <buffer_view R>
  requires writable_buffer<R> && lasting_buffer<R>
work<int> irecv(R&& data, any_source_t /*source*/, detail::group_or_tag first = {}, detail::group_or_tag second = {},
                call_site where = call_site::current()) {
  const auto& [group, tag] = detail::message_place(first, second, where);
  const auto message =
      detail::incoming_buffer("irecv", data, any_source, detail::allowed_peer::any_rank, group, tag, where);
  return detail::start_message(group, message, [](const engines::transfer& came) { return came.source; });
}

/// Receives the next object from one rank or from any, whatever its tag, and returns it with its sender and tag. The
/// messages of a rank come in the order in which it sent them. (MPI's `MPI_ANY_TAG`.)
template <serializable T>
[[nodiscard]] received_with_tag<T> recv(message_source source, const process_group& group, any_tag_t tag,
                                        call_site where = call_site::current()) {
  const auto message = detail::incoming_object<T>("recv", source, detail::allowed_peer::other_rank, group, tag, where);
  detail::complete_message(group, message);
  return detail::take_object_with_tag<T>(group, *message);
}
template <serializable T>
[[nodiscard]] received_with_tag<T> recv(message_source source, any_tag_t tag, const process_group& group = world(),
                                        call_site where = call_site::current()) {
  return recv<T>(source, group, tag, where);
}

/// Receives the next elements from one rank or from any, whatever their tag; returns the sender and the tag.
template <buffer_view R>
  requires writable_buffer<R>
message_info recv(R&& data, message_source source, const process_group& group, any_tag_t tag,
                  call_site where = call_site::current()) {
  const auto message =
      detail::incoming_buffer("recv", data, source, detail::allowed_peer::other_rank, group, tag, where);
  detail::complete_message(group, message);
  return detail::info_of(*message);
}
template <buffer_view R>
  requires writable_buffer<R>
message_info recv(R&& data, message_source source, any_tag_t tag, const process_group& group = world(),
                  call_site where = call_site::current()) {
  return recv(data, source, group, tag, where);
}

/// Starts to receive an object whatever its tag; the work's value is the object, its sender and its tag.
template <serializable T>
work<received_with_tag<T>> irecv(message_source source, const process_group& group, any_tag_t tag,
                                 call_site where = call_site::current()) {
  const auto message = detail::incoming_object<T>("irecv", source, detail::allowed_peer::any_rank, group, tag, where);
  return detail::start_message(
      group, message, [group](const engines::transfer& came) { return detail::take_object_with_tag<T>(group, came); });
}
template <serializable T>
work<received_with_tag<T>> irecv(message_source source, any_tag_t tag, const process_group& group = world(),
                                 call_site where = call_site::current()) {
  return irecv<T>(source, group, tag, where);
}

/// Starts to receive elements whatever their tag into a buffer, which must stay until the work is done; the work's
/// value is the sender and the tag.
template <buffer_view R>
  requires writable_buffer<R> && lasting_buffer<R>
work<message_info> irecv(R&& data, message_source source, const process_group& group, any_tag_t tag,
                         call_site where = call_site::current()) {
  const auto message =
      detail::incoming_buffer("irecv", data, source, detail::allowed_peer::any_rank, group, tag, where);
  return detail::start_message(group, message, [](const engines::transfer& came) { return detail::info_of(came); });
}
template <buffer_view R>
  requires writable_buffer<R> && lasting_buffer<R>
work<message_info> irecv(R&& data, message_source source, any_tag_t tag, const process_group& group = world(),
                         call_site where = call_site::current()) {
  return irecv(data, source, group, tag, where);
}
// Calls that are refused; see call/refused_calls.hpp.

template <class T, class... A, class Why = detail::reason_of<detail::refuse_received_object<T, A...>()>>
detail::refused_result recv(A&&...) = delete;  // Why says the reason and what to do
// The first parameter keeps the object's type of `recv<T>` from being taken for memory.
template <int = 0, class... A, class Why = detail::reason_of<detail::refuse_memory_to_receive<A...>()>>
detail::refused_result recv(A&&...) = delete;  // Why says the reason and what to do
void recv(detail::device_memory_needs_hfcomm_nccl_hpp, ...) = delete;
template <class T, class... A, class Why = detail::reason_of<detail::refuse_received_object<T, A...>()>>
detail::refused_result irecv(A&&...) = delete;  // Why says the reason and what to do
// The first parameter keeps the object's type of `irecv<T>` from being taken for memory.
template <int = 0, class... A, class Why = detail::reason_of<detail::refuse_memory_to_receive<A...>()>>
detail::refused_result irecv(A&&...) = delete;  // Why says the reason and what to do
void irecv(detail::device_memory_needs_hfcomm_nccl_hpp, ...) = delete;

}  // namespace hfcomm
