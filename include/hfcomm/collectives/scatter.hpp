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
#include <hfcomm/serialization/encoding.hpp>

namespace hfcomm {

namespace detail {

/// Returns this rank's object of the root's list.
template <class T>
T scatter_objects(operation&& call, const std::vector<T>& values, const process_group& group) {
  running_call running(group, call);
  check_scatter_objects(running, values.size());
  running.allow_early_leave();
  std::vector<std::span<const std::byte>> parts(static_cast<std::size_t>(group.size()));
  if (group.rank() == call.root) {
    parts = encode_parts(running, call, values);
  }
  new_object<T> mine;
  const auto store = [&](int, T&& received) { *mine = std::move(received); };
  object_receiver<T, decltype(store)> received(running, store);
  running.engine().all_to_all_v(call, {.outgoing = parts}, received);
  return std::move(*mine);
}

}  // namespace detail

/// Returns this rank's object of the root's list, which has one for each rank (usage_error otherwise). The other ranks
/// give an empty list, because their objects would be lost (usage_error otherwise).
template <serializable T>
[[nodiscard]] T scatter(const std::vector<T>& values, detail::optional_root root = 0, detail::or_group group = {},
                        call_site where = call_site::current()) {
  return detail::scatter_objects(detail::object_call<T>("scatter", engines::movement::from_root, root, where), values,
                                 root.in(group, where));
}

/// Gives each rank its part of the root's `in`, which has `out.size()` elements for each rank, in rank order
/// (usage_error otherwise); elsewhere `in` is ignored and may be empty. `out` may be the root's own part of `in`.
template <buffer In, detail::output_for<In> Out>
void scatter(const In& in, Out&& out, detail::optional_root root = 0, detail::or_group group = {},
             call_site where = call_site::current()) {
  detail::scatter_buffer(detail::buffer_call("scatter", engines::movement::from_root, out, root, where),
                         detail::elements_of(in), detail::writable_elements_of(out), root.in(group, where));
}

/// Gives each rank its part of the root's `in`: `counts[r]` elements for rank r, one part after another. Each rank's
/// `out` has as many elements as the root has for it (mismatch_error on every rank otherwise; usage_error for the
/// root's own). Only the root's `in` and `counts` are used. `out` may be the root's own part of `in`. (MPI's
/// `MPI_Scatterv`.)
template <buffer In, detail::output_for<In> Out>
void scatter(const In& in, Out&& out, const detail::counts_of_ranks& counts, detail::optional_root root = 0,
             detail::or_group group = {}, call_site where = call_site::current()) {
  detail::scatter_parts(detail::uneven_call("scatter", engines::movement::from_root, out, root, where),
                        detail::elements_of(in), detail::writable_elements_of(out), counts, root.in(group, where));
}

// Calls that are refused; see call/refused_calls.hpp.

template <class... A, class Why = detail::reason_of<detail::refuse_parts<A...>()>>
detail::refused_result scatter(A&&...) = delete;  // Why says the reason and what to do
void scatter(detail::device_memory_needs_hfcomm_nccl_hpp, ...) = delete;

/// Starts to scatter objects, which are copied; the work's value is this rank's object.
template <serializable T>
work<T> scatter_async(std::vector<T> values, detail::optional_root root = 0, detail::or_group group = {},
                      call_site where = call_site::current()) {
  return detail::start_on(detail::object_call<T>("scatter", engines::movement::from_root, root, where),
                          detail::check_length<detail::check_scatter_objects>, detail::scatter_objects<T>,
                          root.in(group, where), std::move(values));
}

/// Starts to scatter elements; both buffers must stay until the work is done.
template <lasting_buffer In, detail::lasting_output_for<In> Out>
work<void> scatter_async(In&& in, Out&& out, detail::optional_root root = 0, detail::or_group group = {},
                         call_site where = call_site::current()) {
  return detail::start_on_buffers(detail::buffer_call("scatter", engines::movement::from_root, out, root, where),
                                  detail::check_scatter, detail::scatter_buffer, in, out, root.in(group, where));
}

/// The same with parts of different lengths; the counts are copied.
template <lasting_buffer In, detail::lasting_output_for<In> Out>
work<void> scatter_async(In&& in, Out&& out, detail::counts_of_ranks counts, detail::optional_root root = 0,
                         detail::or_group group = {}, call_site where = call_site::current()) {
  return detail::start_on_parts(detail::uneven_call("scatter", engines::movement::from_root, out, root, where),
                                detail::check_scatter, detail::scatter_parts, in, out, std::move(counts).take(),
                                root.in(group, where));
}

// Calls that are refused; see call/refused_calls.hpp.

template <class... A, class Why = detail::reason_of<detail::refuse_parts_later<A...>()>>
detail::refused_result scatter_async(A&&...) = delete;  // Why says the reason and what to do
void scatter_async(detail::device_memory_needs_hfcomm_nccl_hpp, ...) = delete;

}  // namespace hfcomm
