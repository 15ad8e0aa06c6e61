// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <memory>
#include <source_location>
#include <utility>

#include <hfcomm/collectives/detail/message.hpp>

namespace hfcomm {

namespace detail {

/// Returns the transfer that receives beside `out`. Where `make` throws usage_error, the receiver of `out` is told.
template <class Make>
std::shared_ptr<transfer> make_incoming(const process_group& group, const transfer& out, Make make) {
  try {
    return make();
  } catch (const usage_error& problem) {
    send_failure(group, out.call, problem.detail());
    throw;
  }
}

}  // namespace detail

/// Sends an object to one rank and receives one from another (or the same, or oneself) at once. So rings and pairs of
/// ranks that all call it do not deadlock. Throws what `send` and `recv` throw; where both fail, the error of the send.
/// (MPI's `MPI_Sendrecv`.)
template <serializable T>
[[nodiscard]] T send_receive(const T& value, int destination, int source, const process_group& group = world(),
                             int tag = 0, std::source_location where = std::source_location::current()) {
  constexpr auto any_rank = detail::allowed_peer::any_rank;
  const auto out = detail::outgoing_object("send_receive", value, destination, any_rank, group, tag, where);
  const auto in = detail::make_incoming(
      group, *out, [&] { return detail::incoming_object<T>("send_receive", source, any_rank, group, tag, where); });
  detail::complete_messages(group, std::array{out, in});
  return detail::take_object<T>(group, *in).value;
}

/// Sends one buffer's elements and receives another's; the buffers must not overlap (usage_error). The length of each
/// equals that of its peer's buffer.
template <buffer_view Out, buffer_view In>
  requires writable_buffer<In>
void send_receive(const Out& data, int destination, In&& into, int source, const process_group& group = world(),
                  int tag = 0, std::source_location where = std::source_location::current()) {
  constexpr auto any_rank = detail::allowed_peer::any_rank;
  const auto out = detail::outgoing_buffer("send_receive", data, destination, any_rank, group, tag, where);
  const auto in = detail::make_incoming(group, *out, [&] {
    auto made = detail::incoming_buffer("send_receive", into, source, any_rank, group, tag, where);
    detail::require_message(!detail::overlap(out->data, made->into), group, made->call,
                            [] { return "the buffer to receive overlaps the one to send"; });
    return made;
  });
  detail::complete_messages(group, std::array{out, in});
}

}  // namespace hfcomm
