// SPDX-License-Identifier: MIT
#pragma once

#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include <hfcomm/call/async.hpp>
#include <hfcomm/call/counts_of_ranks.hpp>
#include <hfcomm/call/refused_calls.hpp>
#include <hfcomm/call/uneven_parts.hpp>
#include <hfcomm/collectives/detail/buffer_collectives.hpp>
#include <hfcomm/core/call_site.hpp>

namespace hfcomm {

/// Returns every rank's object, in rank order, on the root; an empty vector elsewhere. (detectron2's and MMEngine's
/// `gather`.)
template <serializable T>
[[nodiscard]] std::vector<T> gather(const T& value, detail::optional_root root = 0, detail::or_group group = {},
                                    call_site where = call_site::current()) {
  const process_group& own = root.in(group, where);
  return detail::collect_objects(detail::object_call<T>("gather", engines::movement::to_root, root, where), value,
                                 own.size(), own);
}

/// Gathers every rank's elements, in rank order, in the root's `out`. It holds `in.size() * group.size()` elements
/// (usage_error otherwise). Elsewhere `out` is ignored and may be empty. The root's `in` may be its own part of `out`.
template <buffer In, detail::output_for<In> Out>
void gather(const In& in, Out&& out, detail::optional_root root = 0, detail::or_group group = {},
            call_site where = call_site::current()) {
  detail::gather_buffer(detail::buffer_call("gather", engines::movement::to_root, in, root, where),
                        detail::elements_of(in), detail::writable_elements_of(out), root.in(group, where));
}

/// Gathers every rank's elements, one part after another, in the root's `out`. The root expects `counts[r]` elements
/// from rank r. Where a rank contributes another number, every rank throws mismatch_error; usage_error for the root's
/// own. Only the root's `out` and `counts` are used. The root's `in` may be its own part of `out`. Where the root does
/// not know the counts, `gather_v` transfers them, too. (MPI's `MPI_Gatherv`.)
template <buffer In, detail::output_for<In> Out>
void gather(const In& in, Out&& out, const detail::counts_of_ranks& counts, detail::optional_root root = 0,
            detail::or_group group = {}, call_site where = call_site::current()) {
  detail::gather_parts(detail::uneven_call("gather", engines::movement::to_root, in, root, where),
                       detail::elements_of(in), detail::writable_elements_of(out), counts, root.in(group, where));
}

// Calls that are refused; see call/refused_calls.hpp.

template <class... A, class Why = detail::reason_of<detail::refuse_object_or_buffers<A...>()>>
detail::refused_result gather(A&&...) = delete;  // Why says the reason and what to do
void gather(detail::device_memory_needs_hfcomm_nccl_hpp, ...) = delete;

/// Starts to gather objects, of which this rank's is copied; the work's value is every rank's object on the root.
template <serializable T>
work<std::vector<T>> gather_async(T value, detail::optional_root root = 0, detail::or_group group = {},
                                  call_site where = call_site::current()) {
  return detail::start_to_collect(detail::object_call<T>("gather", engines::movement::to_root, root, where),
                                  std::move(value), root.in(group, where));
}

/// Starts to gather elements; both buffers must stay until the work is done.
template <lasting_buffer In, detail::lasting_output_for<In> Out>
work<void> gather_async(In&& in, Out&& out, detail::optional_root root = 0, detail::or_group group = {},
                        call_site where = call_site::current()) {
  return detail::start_on_buffers(detail::buffer_call("gather", engines::movement::to_root, in, root, where),
                                  detail::check_gather, detail::gather_buffer, in, out, root.in(group, where));
}

/// The same with parts of different lengths; the counts are copied.
template <lasting_buffer In, detail::lasting_output_for<In> Out>
work<void> gather_async(In&& in, Out&& out, detail::counts_of_ranks counts, detail::optional_root root = 0,
                        detail::or_group group = {}, call_site where = call_site::current()) {
  return detail::start_on_parts(detail::uneven_call("gather", engines::movement::to_root, in, root, where),
                                detail::check_gather, detail::gather_parts, in, out, std::move(counts).take(),
                                root.in(group, where));
}

// Calls that are refused; see call/refused_calls.hpp.

template <class... A, class Why = detail::reason_of<detail::refuse_object_or_buffers_later<A...>()>>
detail::refused_result gather_async(A&&...) = delete;  // Why says the reason and what to do
void gather_async(detail::device_memory_needs_hfcomm_nccl_hpp, ...) = delete;

}  // namespace hfcomm
