// SPDX-License-Identifier: MIT
#pragma once

#include <span>
#include <utility>
#include <vector>

#include <hfcomm/call/async.hpp>
#include <hfcomm/call/counts_of_ranks.hpp>
#include <hfcomm/call/refused_calls.hpp>
#include <hfcomm/call/uneven_parts.hpp>
#include <hfcomm/collectives/detail/buffer_collectives.hpp>
#include <hfcomm/core/call_site.hpp>

namespace hfcomm {

/// Reduces element by element and leaves each rank one of equal parts of the result, in rank order: `in` has
/// `out.size()` elements for each rank (usage_error otherwise). `out` may be this rank's own part of `in`. The bits are
/// those that `all_reduce` gives.
template <reducible_buffer In, detail::output_for<In> Out>
void reduce_scatter(const In& in, Out&& out, detail::op_on<In> op = reduce_op::sum, detail::or_group group = {},
                    call_site where = call_site::current()) {
  detail::reduce_scatter_buffer(detail::reduction_call("reduce_scatter", engines::movement::to_all, in, -1, op, where),
                                detail::elements_of(in), detail::writable_elements_of(out), op.in(group, where));
}

/// Reduces element by element and leaves rank r `counts[r]` elements of the result, one part after another. The
/// counts are the same on all ranks (mismatch_error otherwise), their sum is `in`'s length, and this rank's is `out`'s.
template <reducible_buffer In, detail::output_for<In> Out>
void reduce_scatter(const In& in, Out&& out, const detail::counts_of_ranks& counts,
                    detail::op_on<In> op = reduce_op::sum, detail::or_group group = {},
                    call_site where = call_site::current()) {
  detail::reduce_scatter_parts(detail::reduction_call("reduce_scatter", engines::movement::to_all, in, -1, op, where),
                               detail::elements_of(in), detail::writable_elements_of(out), counts, op.in(group, where));
}

// Calls that are refused; see call/refused_calls.hpp.

template <class... A, class Why = detail::reason_of<detail::refuse_reduced_parts<A...>()>>
detail::refused_result reduce_scatter(A&&...) = delete;  // Why says the reason and what to do
void reduce_scatter(detail::device_memory_needs_hfcomm_nccl_hpp, ...) = delete;

/// Starts a reduce-scatter; both buffers must stay until the work is done.
template <detail::lasting_reducible_buffer In, detail::lasting_output_for<In> Out>
work<void> reduce_scatter_async(In&& in, Out&& out, detail::op_on<In> op = reduce_op::sum, detail::or_group group = {},
                                call_site where = call_site::current()) {
  return detail::start_on_buffers(
      detail::reduction_call("reduce_scatter", engines::movement::to_all, in, -1, op, where),
      detail::check_reduce_scatter, detail::reduce_scatter_buffer, in, out, op.in(group, where));
}

/// The same with parts of different lengths; the counts are copied.
template <detail::lasting_reducible_buffer In, detail::lasting_output_for<In> Out>
work<void> reduce_scatter_async(In&& in, Out&& out, detail::counts_of_ranks counts,
                                detail::op_on<In> op = reduce_op::sum, detail::or_group group = {},
                                call_site where = call_site::current()) {
  return detail::start_on_parts(detail::reduction_call("reduce_scatter", engines::movement::to_all, in, -1, op, where),
                                detail::check_reduce_scatter, detail::reduce_scatter_parts, in, out,
                                std::move(counts).take(), op.in(group, where));
}

// Calls that are refused; see call/refused_calls.hpp.

template <class... A, class Why = detail::reason_of<detail::refuse_reduced_parts_later<A...>()>>
detail::refused_result reduce_scatter_async(A&&...) = delete;  // Why says the reason and what to do
void reduce_scatter_async(detail::device_memory_needs_hfcomm_nccl_hpp, ...) = delete;

}  // namespace hfcomm
