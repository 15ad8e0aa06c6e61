// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <source_location>
#include <span>
#include <utility>
#include <vector>

#include <hfcomm/call/async.hpp>
#include <hfcomm/collectives/detail/collect_parts.hpp>

namespace hfcomm {

/// Sends `counts[r]` elements of `in` to rank r, one part after another. Returns what the ranks sent to this one, in
/// rank order, and the number from each. A rank needs not know the numbers that it receives: they come with the
/// elements, in one operation. There is a count for each rank, and their sum is the length of `in` (usage_error
/// otherwise). (MPI's `MPI_Alltoallv` behind an `MPI_Alltoall` of the counts.)
template <buffer In>
[[nodiscard]] received_parts<std::ranges::range_value_t<In>> all_to_all_v(
    const In& in, std::span<const std::size_t> counts, const process_group& group = world(),
    std::source_location where = std::source_location::current()) {
  using T = std::ranges::range_value_t<In>;
  return detail::receive_parts<T>([&](detail::parts_memory memory) {
    detail::exchange_parts(
        detail::uneven_call<T>("all_to_all_v", engines::movement::to_all, std::ranges::size(in), -1, where),
        detail::elements_of(in), counts, memory, group);
  });
}

/// Starts an all-to-all of elements, which must stay until the work is done; the counts are copied. Its value is what
/// this rank has received.
template <lasting_buffer In>
work<received_parts<std::ranges::range_value_t<In>>> all_to_all_v_async(
    In&& in, std::vector<std::size_t> counts, const process_group& group = world(),
    std::source_location where = std::source_location::current()) {
  const auto call = [](auto&&... arguments) { return all_to_all_v(std::forward<decltype(arguments)>(arguments)...); };
  const auto check = [&](detail::checked_call& running) {
    detail::check_all_to_all(running, detail::elements_of(in), counts);
  };
  return detail::start_checked(detail::uneven_call<std::ranges::range_value_t<In>>(
                                   "all_to_all_v", engines::movement::to_all, std::ranges::size(in), -1, where),
                               check, call, group, detail::view_of(in), std::move(counts));
}

}  // namespace hfcomm
