// SPDX-License-Identifier: MIT
#pragma once

#include <source_location>
#include <utility>

#include <hfcomm/call/async.hpp>
#include <hfcomm/collectives/detail/collect_parts.hpp>

namespace hfcomm {

/// Returns every rank's elements, one part after another in rank order, and the number from each, on every rank. A rank
/// contributes any number of elements, and needs not know the others' numbers: they come with the elements, in one
/// operation. (MPI's `MPI_Allgatherv` behind an `MPI_Allgather` of the counts.)
template <buffer In>
[[nodiscard]] received_parts<std::ranges::range_value_t<In>> all_gather_v(
    const In& in, const process_group& group = world(), std::source_location where = std::source_location::current()) {
  using T = std::ranges::range_value_t<In>;
  return detail::receive_parts<T>([&](detail::parts_memory memory) {
    detail::collect_parts(
        detail::uneven_call<T>("all_gather_v", engines::movement::to_all, std::ranges::size(in), -1, where),
        detail::elements_of(in), memory, group);
  });
}

/// Starts to gather elements, which must stay until the work is done; its value is all elements and their numbers.
template <lasting_buffer In>
work<received_parts<std::ranges::range_value_t<In>>> all_gather_v_async(
    In&& in, const process_group& group = world(), std::source_location where = std::source_location::current()) {
  const auto call = [](auto&&... arguments) { return all_gather_v(std::forward<decltype(arguments)>(arguments)...); };
  return detail::start_checked(detail::uneven_call<std::ranges::range_value_t<In>>(
                                   "all_gather_v", engines::movement::to_all, std::ranges::size(in), -1, where),
                               detail::bind_check(detail::check_contribution, in), call, group, detail::view_of(in));
}

}  // namespace hfcomm
