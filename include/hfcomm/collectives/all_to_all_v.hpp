// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include <hfcomm/call/async.hpp>
#include <hfcomm/call/counts_of_ranks.hpp>
#include <hfcomm/call/refused_calls.hpp>
#include <hfcomm/collectives/detail/collect_parts.hpp>
#include <hfcomm/core/call_site.hpp>

namespace hfcomm {

/// Sends `counts[r]` elements of `in` to rank r, one part after another. Returns what the ranks sent to this one, in
/// rank order, and the number from each. A rank needs not know the numbers that it receives: they come with the
/// elements, in one operation. There is a count for each rank, and their sum is the length of `in` (usage_error
/// otherwise). (MPI's `MPI_Alltoallv` behind an `MPI_Alltoall` of the counts.)
template <buffer In>
[[nodiscard]] received_parts<detail::value_of<In>> all_to_all_v(const In& in, const detail::counts_of_ranks& counts,
                                                                const process_group& group = world(),
                                                                call_site where = call_site::current()) {
  return detail::received_by_exchange<detail::value_of<In>>(
      detail::uneven_call("all_to_all_v", engines::movement::to_all, in, -1, where), detail::elements_of(in), counts,
      group);
}

/// Starts an all-to-all of elements, which must stay until the work is done; the counts are copied. Its value is what
/// this rank has received.
template <lasting_buffer In>
work<received_parts<detail::value_of<In>>> all_to_all_v_async(In&& in, detail::counts_of_ranks counts,
                                                              const process_group& group = world(),
                                                              call_site where = call_site::current()) {
  const auto check = [](auto& running, const auto&... parts) { detail::check_all_to_all(running, parts...); };
  return detail::start_on(detail::uneven_call("all_to_all_v", engines::movement::to_all, in, -1, where), check,
                          detail::received_by_exchange<detail::value_of<In>>, group, detail::elements_of(in),
                          std::move(counts).take());
}

// Calls that are refused; see call/refused_calls.hpp.

template <class... A, class Why = detail::reason_of<detail::refuse_contribution<A...>()>>
detail::refused_result all_to_all_v(A&&...) = delete;  // Why says the reason and what to do
template <class... A, class Why = detail::reason_of<detail::refuse_contribution_later<A...>()>>
detail::refused_result all_to_all_v_async(A&&...) = delete;  // Why says the reason and what to do

}  // namespace hfcomm
