// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

#include <hfcomm/call/refused_calls.hpp>
#include <hfcomm/call/refused_messages.hpp>
#include <hfcomm/collectives/detail/message.hpp>
#include <hfcomm/collectives/detail/message_place.hpp>
#include <hfcomm/core/call_site.hpp>

namespace hfcomm {

namespace detail {

/// The two messages of one send_receive. A rank that cannot make one of them tells both peers, which would wait for it.
struct message_pair {
  std::shared_ptr<transfer> out;
  std::shared_ptr<transfer> in;

  /// `incoming` is the receiving call. `make_out` tells the receiver of its exceptions itself, as for `send`. No rank
  /// is told of a destination or tag that is impossible.
  template <class MakeOut, class MakeIn>
  message_pair(const process_group& group, const operation& incoming, int destination, int tag, MakeOut make_out,
               MakeIn make_in) {
    (void)addressed(incoming, group, movement::send, destination, allowed_peer::any_rank, tag);  // checks both
    try {
      out = make_out();
    } catch (...) {
      refuse_message(group, incoming, current_exception_text());
      throw;
    }
    try {
      in = make_in(*out);
    } catch (...) {
      const std::string text = current_exception_detail();
      send_failure(group, out->call, text);
      refuse_message(group, incoming, text);
      throw;
    }
  }
};

}  // namespace detail

/// Sends an object to one rank and receives one from another (or the same, or oneself) at once. So rings and pairs of
/// ranks that all call it do not deadlock. Throws what `send` and `recv` throw; where both fail, the error of the send.
/// Both peers throw peer_error with the reason if this rank cannot make its part.
/// (MPI's `MPI_Sendrecv`.)
template <serializable T>
[[nodiscard]] T send_receive(const T& value, int destination, int source, detail::group_or_tag first = {},
                             detail::group_or_tag second = {}, call_site where = call_site::current()) {
  const auto& [group, tag] = detail::message_place(first, second, where);
  constexpr auto any_rank = detail::allowed_peer::any_rank;
  const detail::message_pair pair(
      group, detail::tagged(detail::object_call<T>("send_receive", detail::movement::receive, source, where), tag),
      destination, tag,
      [&] { return detail::outgoing_object("send_receive", value, destination, any_rank, group, tag, where); },
      [&](const detail::transfer&) {
        return detail::incoming_object<T>("send_receive", source, any_rank, group, tag, where);
      });
  detail::complete_messages(group, std::array{pair.out, pair.in});
  return detail::take_value<T>(group, *pair.in);
}

/// Sends one buffer's elements and receives another's; the buffers must not overlap (usage_error). The length of each
/// equals that of its peer's buffer.
template <buffer_view Out, buffer_view In>
  requires writable_buffer<In>
void send_receive(const Out& data, int destination, In&& into, int source, detail::group_or_tag first = {},
                  detail::group_or_tag second = {}, call_site where = call_site::current()) {
  const auto& [group, tag] = detail::message_place(first, second, where);
  constexpr auto any_rank = detail::allowed_peer::any_rank;
  const auto incoming = detail::buffer_call<detail::value_of<In>>("send_receive", detail::movement::receive,
                                                                  detail::count_in(into), source, where);
  const detail::message_pair pair(
      group, detail::tagged(incoming, tag), destination, tag,
      [&] { return detail::outgoing_buffer("send_receive", data, destination, any_rank, group, tag, where); },
      [&](const detail::transfer& out) {
        auto made = detail::incoming_buffer("send_receive", into, source, any_rank, group, tag, where);
        detail::require_message(!detail::overlap(out.data, made->into), group, made->call,
                                [] { return "the buffer to receive overlaps the one to send"; });
        return made;
      });
  detail::complete_messages(group, std::array{pair.out, pair.in});
}

// Calls that are refused; see call/refused_calls.hpp.

template <class... A, class Why = detail::reason_of<detail::refuse_send_receive<A...>()>>
detail::refused_result send_receive(A&&...) = delete;  // Why says the reason and what to do
void send_receive(detail::device_memory_needs_hfcomm_nccl_hpp, ...) = delete;

}  // namespace hfcomm
