// SPDX-License-Identifier: MIT
#pragma once

#include <utility>

#include <hfcomm/call/async.hpp>
#include <hfcomm/call/refused_calls.hpp>
#include <hfcomm/collectives/detail/collect_parts.hpp>
#include <hfcomm/core/call_site.hpp>

namespace hfcomm {

/// Returns every rank's elements, one part after another in rank order, and the number from each, on the root; nothing
/// elsewhere. A rank contributes any number of elements, which the root needs not know. (MPI's `MPI_Gatherv` behind an
/// `MPI_Gather` of the counts.)
template <buffer In>
[[nodiscard]] received_parts<detail::value_of<In>> gather_v(const In& in, detail::optional_root root = 0,
                                                            detail::or_group group = {},
                                                            call_site where = call_site::current()) {
  return detail::received_from_all<detail::value_of<In>>(
      detail::uneven_call("gather_v", engines::movement::to_root, in, root, where), detail::elements_of(in),
      root.in(group, where));
}

/// Starts to gather elements, which must stay until the work is done; its value on the root is all elements and their
/// numbers.
template <lasting_buffer In>
work<received_parts<detail::value_of<In>>> gather_v_async(In&& in, detail::optional_root root = 0,
                                                          detail::or_group group = {},
                                                          call_site where = call_site::current()) {
  return detail::start_on(detail::uneven_call("gather_v", engines::movement::to_root, in, root, where),
                          detail::check_contribution, detail::received_from_all<detail::value_of<In>>,
                          root.in(group, where), detail::elements_of(in));
}

// Calls that are refused; see call/refused_calls.hpp.

template <class... A, class Why = detail::reason_of<detail::refuse_contribution<A...>()>>
detail::refused_result gather_v(A&&...) = delete;  // Why says the reason and what to do
template <class... A, class Why = detail::reason_of<detail::refuse_contribution_later<A...>()>>
detail::refused_result gather_v_async(A&&...) = delete;  // Why says the reason and what to do

}  // namespace hfcomm
