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

/// Returns every rank's object, in rank order, on every rank. The objects may differ in size. (detectron2's
/// `all_gather`, torch's `all_gather_object`; nothing is padded, and no GPU is used.)
template <serializable T>
[[nodiscard]] std::vector<T> all_gather(const T& value, const process_group& group = world(),
                                        call_site where = call_site::current()) {
  return detail::collect_objects(detail::object_call<T>("all_gather", engines::movement::to_all, -1, where), value,
                                 group.size(), group);
}

/// Gathers every rank's elements, in rank order, in `out` on every rank. `out` holds `in.size() * group.size()`
/// elements (usage_error otherwise). `in` may be this rank's own part of `out`.
template <buffer In, detail::output_for<In> Out>
void all_gather(const In& in, Out&& out, const process_group& group = world(), call_site where = call_site::current()) {
  detail::all_gather_buffer(detail::buffer_call("all_gather", engines::movement::to_all, in, -1, where),
                            detail::elements_of(in), detail::writable_elements_of(out), group);
}

/// Gathers every rank's elements, one part after another, in `out` on every rank. Rank r contributes `counts[r]`
/// elements. The counts are equal on all ranks (mismatch_error otherwise). This rank's count is the length of `in`, and
/// their sum is the length of `out` (usage_error otherwise). Where no rank knows the others' counts, `all_gather_v`
/// transfers them, too. (MPI's `MPI_Allgatherv`.)
template <buffer In, detail::output_for<In> Out>
void all_gather(const In& in, Out&& out, const detail::counts_of_ranks& counts, const process_group& group = world(),
                call_site where = call_site::current()) {
  detail::all_gather_parts(detail::uneven_call("all_gather", engines::movement::to_all, in, -1, where),
                           detail::elements_of(in), detail::writable_elements_of(out), counts, group);
}

// Calls that are refused; see call/refused_calls.hpp.

template <class... A, class Why = detail::reason_of<detail::refuse_object_or_buffers<A...>()>>
detail::refused_result all_gather(A&&...) = delete;  // Why says the reason and what to do
void all_gather(detail::device_memory_needs_hfcomm_nccl_hpp, ...) = delete;

/// Starts to gather objects, of which this rank's is copied; the work's value is every rank's object.
template <serializable T>
work<std::vector<T>> all_gather_async(T value, const process_group& group = world(),
                                      call_site where = call_site::current()) {
  return detail::start_to_collect(detail::object_call<T>("all_gather", engines::movement::to_all, -1, where),
                                  std::move(value), group);
}

/// Starts to gather elements; both buffers must stay until the work is done.
template <lasting_buffer In, detail::lasting_output_for<In> Out>
work<void> all_gather_async(In&& in, Out&& out, const process_group& group = world(),
                            call_site where = call_site::current()) {
  return detail::start_on_buffers(detail::buffer_call("all_gather", engines::movement::to_all, in, -1, where),
                                  detail::check_all_gather, detail::all_gather_buffer, in, out, group);
}

/// The same with parts of different lengths; the counts are copied.
template <lasting_buffer In, detail::lasting_output_for<In> Out>
work<void> all_gather_async(In&& in, Out&& out, detail::counts_of_ranks counts, const process_group& group = world(),
                            call_site where = call_site::current()) {
  return detail::start_on_parts(detail::uneven_call("all_gather", engines::movement::to_all, in, -1, where),
                                detail::check_all_gather, detail::all_gather_parts, in, out, std::move(counts).take(),
                                group);
}

// Calls that are refused; see call/refused_calls.hpp.

template <class... A, class Why = detail::reason_of<detail::refuse_object_or_buffers_later<A...>()>>
detail::refused_result all_gather_async(A&&...) = delete;  // Why says the reason and what to do
void all_gather_async(detail::device_memory_needs_hfcomm_nccl_hpp, ...) = delete;

}  // namespace hfcomm
