// SPDX-License-Identifier: MIT
#pragma once

#include <utility>

#include <hfcomm/call/async.hpp>
#include <hfcomm/call/refused_calls.hpp>
#include <hfcomm/collectives/detail/collect_parts.hpp>
#include <hfcomm/core/call_site.hpp>

namespace hfcomm {

/// Returns every rank's elements, one part after another in rank order, and the number from each, on every rank. A rank
/// contributes any number of elements, and needs not know the others' numbers: they come with the elements, in one
/// operation. (MPI's `MPI_Allgatherv` behind an `MPI_Allgather` of the counts.)
template <buffer In>
[[nodiscard]] received_parts<detail::value_of<In>> all_gather_v(const In& in, const process_group& group = world(),
                                                                call_site where = call_site::current()) {
  return detail::received_from_all<detail::value_of<In>>(
      detail::uneven_call("all_gather_v", engines::movement::to_all, in, -1, where), detail::elements_of(in), group);
}

/// Starts to gather elements, which must stay until the work is done; its value is all elements and their numbers.
template <lasting_buffer In>
work<received_parts<detail::value_of<In>>> all_gather_v_async(In&& in, const process_group& group = world(),
                                                              call_site where = call_site::current()) {
  return detail::start_on(detail::uneven_call("all_gather_v", engines::movement::to_all, in, -1, where),
                          detail::check_contribution, detail::received_from_all<detail::value_of<In>>, group,
                          detail::elements_of(in));
}

// Calls that are refused; see call/refused_calls.hpp.

template <class... A, class Why = detail::reason_of<detail::refuse_contribution<A...>()>>
detail::refused_result all_gather_v(A&&...) = delete;  // Why says the reason and what to do
template <class... A, class Why = detail::reason_of<detail::refuse_contribution_later<A...>()>>
detail::refused_result all_gather_v_async(A&&...) = delete;  // Why says the reason and what to do

}  // namespace hfcomm
