// SPDX-License-Identifier: MIT
#pragma once

#include <source_location>
#include <utility>

#include <hfcomm/call/async.hpp>
#include <hfcomm/collectives/detail/collect_parts.hpp>

namespace hfcomm {

/// Returns every rank's elements, one part after another in rank order, and the number from each, on the root; nothing
/// elsewhere. A rank contributes any number of elements, which the root needs not know. (MPI's `MPI_Gatherv` behind an
/// `MPI_Gather` of the counts.)
template <buffer In>
[[nodiscard]] received_parts<std::ranges::range_value_t<In>> gather_v(
    const In& in, int root = 0, const process_group& group = world(),
    std::source_location where = std::source_location::current()) {
  using T = std::ranges::range_value_t<In>;
  return detail::receive_parts<T>([&](detail::parts_memory memory) {
    detail::collect_parts(
        detail::uneven_call<T>("gather_v", engines::movement::to_root, std::ranges::size(in), root, where),
        detail::elements_of(in), memory, group);
  });
}

/// Starts to gather elements, which must stay until the work is done; its value on the root is all elements and their
/// numbers.
template <lasting_buffer In>
work<received_parts<std::ranges::range_value_t<In>>> gather_v_async(
    In&& in, int root = 0, const process_group& group = world(),
    std::source_location where = std::source_location::current()) {
  const auto call = [](auto&&... arguments) { return gather_v(std::forward<decltype(arguments)>(arguments)...); };
  return detail::start_checked(detail::uneven_call<std::ranges::range_value_t<In>>(
                                   "gather_v", engines::movement::to_root, std::ranges::size(in), root, where),
                               detail::bind_check(detail::check_contribution, in), call, group, detail::view_of(in),
                               root);
}

}  // namespace hfcomm
