// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <memory>
#include <source_location>
#include <utility>

#include <hfcomm/collectives/detail/message.hpp>

namespace hfcomm {

namespace detail {

/// What receives its part beside `out`. Where that cannot be, whoever waits for `out` is told.
template <class Make>
std::shared_ptr<transfer> beside(const process_group& group, const transfer& out, Make make) {
  try {
    return make();
  } catch (const usage_error& problem) {
    send_failure(group, out.call, problem.detail());
    throw;
  }
}

}  // namespace detail

/// Sends an object to one rank and receives one from another (or the same, or oneself) at once: rings and pairs of
/// ranks that all call it do not wait for each other in vain. Throws what `send` and `recv` throw; where both halves
/// fail, what the sending one met. (MPI's `MPI_Sendrecv`.)
template <serializable T>
[[nodiscard]] T send_receive(const T& value, int destination, int source, const process_group& group = world(),
                             int tag = 0, std::source_location where = std::source_location::current()) {
  constexpr auto partner = detail::partner::any_rank;
  const auto out = detail::outgoing_object("send_receive", value, destination, partner, group, tag, where);
  const auto in = detail::beside(
      group, *out, [&] { return detail::incoming_object<T>("send_receive", source, partner, group, tag, where); });
  detail::pass(group, std::array{out, in});
  return detail::take_object<T>(group, *in).value;
}

/// Sends one buffer's elements and receives another's; the buffers must not overlap (usage_error). Each has the length
/// that its peer gives it.
template <buffer_view Out, buffer_view In>
  requires writable_buffer<In>
void send_receive(const Out& data, int destination, In&& into, int source, const process_group& group = world(),
                  int tag = 0, std::source_location where = std::source_location::current()) {
  constexpr auto partner = detail::partner::any_rank;
  const auto out = detail::outgoing_buffer("send_receive", data, destination, partner, group, tag, where);
  const auto in = detail::beside(group, *out, [&] {
    auto made = detail::incoming_buffer("send_receive", into, source, partner, group, tag, where);
    detail::require_message(!detail::overlap(out->data, made->into), group, made->call,
                            [] { return "the buffer to receive overlaps the one to send"; });
    return made;
  });
  detail::pass(group, std::array{out, in});
}

}  // namespace hfcomm
