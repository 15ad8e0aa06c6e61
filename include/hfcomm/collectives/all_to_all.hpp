// SPDX-License-Identifier: MIT
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include <hfcomm/call/async.hpp>
#include <hfcomm/call/counts_of_ranks.hpp>
#include <hfcomm/call/refused_calls.hpp>
#include <hfcomm/call/uneven_parts.hpp>
#include <hfcomm/collectives/detail/buffer_collectives.hpp>
#include <hfcomm/core/call_site.hpp>

namespace hfcomm {

namespace detail {

/// Sends the r-th object to rank r, and returns the objects that the ranks sent to this one.
template <class T>
std::vector<T> exchange_lists(operation&& call, const std::vector<T>& values, const process_group& group) {
  running_call running(group, call);
  check_all_to_all_objects(running, values.size());
  const auto parts = encode_parts(running, call, values);
  std::vector<T> result(static_cast<std::size_t>(group.size()));
  const auto store = [&](int source, T&& received) { result[static_cast<std::size_t>(source)] = std::move(received); };
  object_receiver<T, decltype(store)> received(running, store);
  running.engine().all_to_all_v(call, {.outgoing = parts}, received);
  return result;
}

/// Returns the operation on equal parts, of which rank r gets the r-th.
template <class In>
operation equal_parts_call(const In& in, const process_group& group, call_site where) {
  const std::size_t count = count_in(in) / static_cast<std::size_t>(group.size());
  return buffer_call<value_of<In>>("all_to_all", movement::to_all, count, -1, where);
}

}  // namespace detail

/// Sends the r-th object to rank r, and returns the objects that the ranks sent to this one, in rank order. The list
/// has one object for each rank (usage_error otherwise); the objects may differ in size.
template <serializable T>
[[nodiscard]] std::vector<T> all_to_all(const std::vector<T>& values, const process_group& group = world(),
                                        call_site where = call_site::current()) {
  return detail::exchange_lists(detail::object_call<T>("all_to_all", engines::movement::to_all, -1, where), values,
                                group);
}

/// Sends the r-th of equal parts of `in` to rank r; `out`, as long as `in`, gets the ranks' parts in rank order. The
/// length is a multiple of the group's size, and the buffers do not overlap (usage_error otherwise). (torch's
/// `all_to_all_single`.)
template <buffer In, detail::output_for<In> Out>
void all_to_all(const In& in, Out&& out, const process_group& group = world(), call_site where = call_site::current()) {
  detail::all_to_all_buffer(detail::equal_parts_call(in, group, where), detail::elements_of(in),
                            detail::writable_elements_of(out), group);
}

/// Sends `in_counts[r]` elements of `in` to rank r, one part after another, and receives `out_counts[r]` from it.
/// The sender's count must equal its receiver's; otherwise every rank throws mismatch_error naming the first two that
/// differ. Counts that do not match one rank's own buffers are a usage_error there. The buffers must not overlap.
/// (torch's `all_to_all_single` with split sizes, MPI's `MPI_Alltoallv`.)
template <buffer In, detail::output_for<In> Out>
void all_to_all(const In& in, const detail::counts_of_ranks& in_counts, Out&& out,
                const detail::counts_of_ranks& out_counts, const process_group& group = world(),
                call_site where = call_site::current()) {
  detail::all_to_all_parts(detail::uneven_call("all_to_all", engines::movement::to_all, in, -1, where),
                           detail::elements_of(in), in_counts, detail::writable_elements_of(out), out_counts, group);
}

// Calls that are refused; see call/refused_calls.hpp.

template <class... A, class Why = detail::reason_of<detail::refuse_exchange<A...>()>>
detail::refused_result all_to_all(A&&...) = delete;  // Why says the reason and what to do
void all_to_all(detail::device_memory_needs_hfcomm_nccl_hpp, ...) = delete;

/// Starts an all-to-all of objects, which are copied; the work's value is the list of objects that the ranks sent to
/// this one.
template <serializable T>
work<std::vector<T>> all_to_all_async(std::vector<T> values, const process_group& group = world(),
                                      call_site where = call_site::current()) {
  return detail::start_on(detail::object_call<T>("all_to_all", engines::movement::to_all, -1, where),
                          detail::check_length<detail::check_all_to_all_objects>, detail::exchange_lists<T>, group,
                          std::move(values));
}

/// Starts an all-to-all of elements; both buffers must stay until the work is done.
template <lasting_buffer In, detail::lasting_output_for<In> Out>
work<void> all_to_all_async(In&& in, Out&& out, const process_group& group = world(),
                            call_site where = call_site::current()) {
  return detail::start_on_buffers(detail::equal_parts_call(in, group, where), detail::check_all_to_all,
                                  detail::all_to_all_buffer, in, out, group);
}

/// The same with parts of different lengths; the counts are copied.
template <lasting_buffer In, detail::lasting_output_for<In> Out>
work<void> all_to_all_async(In&& in, detail::counts_of_ranks in_counts, Out&& out, detail::counts_of_ranks out_counts,
                            const process_group& group = world(), call_site where = call_site::current()) {
  const auto check = [](auto& running, const auto&... parts) { detail::check_all_to_all(running, parts...); };
  return detail::start_on(detail::uneven_call("all_to_all", engines::movement::to_all, in, -1, where), check,
                          detail::all_to_all_parts, group, detail::elements_of(in), std::move(in_counts).take(),
                          detail::writable_elements_of(out), std::move(out_counts).take());
}

// Calls that are refused; see call/refused_calls.hpp.

template <class... A, class Why = detail::reason_of<detail::refuse_exchange_later<A...>()>>
detail::refused_result all_to_all_async(A&&...) = delete;  // Why says the reason and what to do
void all_to_all_async(detail::device_memory_needs_hfcomm_nccl_hpp, ...) = delete;

}  // namespace hfcomm
