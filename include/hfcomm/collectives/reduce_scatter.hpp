// SPDX-License-Identifier: MIT
#pragma once

#include <source_location>
#include <span>
#include <utility>
#include <vector>

#include <hfcomm/call/async.hpp>
#include <hfcomm/call/refused_calls.hpp>
#include <hfcomm/call/uneven_parts.hpp>
#include <hfcomm/collectives/detail/buffer_collectives.hpp>

namespace hfcomm {

/// Reduces element by element and leaves each rank one of equal parts of the result, in rank order: `in` has
/// `out.size()` elements for each rank (usage_error otherwise). `out` may be this rank's own part of `in`. The bits are
/// those that `all_reduce` gives.
template <reducible_buffer In, writable_reducible_buffer Out>
  requires std::same_as<std::ranges::range_value_t<In>, std::ranges::range_value_t<Out>>
void reduce_scatter(const In& in, Out&& out, detail::op_for<std::ranges::range_value_t<In>> op = reduce_op::sum,
                    const process_group& group = world(),
                    std::source_location where = std::source_location::current()) {
  detail::reduce_scatter_buffer(detail::reduction_call<std::ranges::range_value_t<In>>(
                                    "reduce_scatter", engines::movement::to_all, std::ranges::size(in), -1, op, where),
                                detail::elements_of(in), detail::writable_elements_of(out), group);
}

/// Reduces element by element and leaves rank r `counts[r]` elements of the result, one part after another. The
/// counts are the same on all ranks (mismatch_error otherwise), their sum is `in`'s length, and this rank's is `out`'s.
template <reducible_buffer In, writable_reducible_buffer Out>
  requires std::same_as<std::ranges::range_value_t<In>, std::ranges::range_value_t<Out>>
void reduce_scatter(const In& in, Out&& out, std::span<const std::size_t> counts,
                    detail::op_for<std::ranges::range_value_t<In>> op = reduce_op::sum,
                    const process_group& group = world(),
                    std::source_location where = std::source_location::current()) {
  detail::reduce_scatter_parts(detail::reduction_call<std::ranges::range_value_t<In>>(
                                   "reduce_scatter", engines::movement::to_all, std::ranges::size(in), -1, op, where),
                               detail::elements_of(in), detail::writable_elements_of(out), counts, group);
}

// Calls that are refused; see call/refused_calls.hpp.

void reduce_scatter(detail::any_device_range,
                    ...) = delete;  // device memory: include <hfcomm/nccl.hpp>, and pass a stream

namespace detail {

/// The overloads of `reduce_scatter`, as one function object.
inline constexpr auto call_reduce_scatter = [](auto&&... arguments) {
  return hfcomm::reduce_scatter(std::forward<decltype(arguments)>(arguments)...);
};

}  // namespace detail

/// Starts a reduce-scatter; both buffers must stay until the work is done.
template <lasting_buffer In, lasting_buffer Out>
  requires reducible_buffer<In> && writable_reducible_buffer<Out> &&
           std::same_as<std::ranges::range_value_t<In>, std::ranges::range_value_t<Out>>
work<void> reduce_scatter_async(In&& in, Out&& out, detail::op_for<std::ranges::range_value_t<In>> op = reduce_op::sum,
                                const process_group& group = world(),
                                std::source_location where = std::source_location::current()) {
  return detail::start_checked(detail::reduction_call_without_kernel<std::ranges::range_value_t<In>>(
                                   "reduce_scatter", engines::movement::to_all, std::ranges::size(in), -1, op, where),
                               detail::bind_check(detail::check_reduce_scatter, in, out), detail::call_reduce_scatter,
                               group, detail::view_of(in), detail::view_of(out), op);
}

/// The same with parts of different lengths; the counts are copied.
template <lasting_buffer In, lasting_buffer Out>
  requires reducible_buffer<In> && writable_reducible_buffer<Out> &&
           std::same_as<std::ranges::range_value_t<In>, std::ranges::range_value_t<Out>>
work<void> reduce_scatter_async(In&& in, Out&& out, std::vector<std::size_t> counts,
                                detail::op_for<std::ranges::range_value_t<In>> op = reduce_op::sum,
                                const process_group& group = world(),
                                std::source_location where = std::source_location::current()) {
  return detail::start_checked(detail::reduction_call_without_kernel<std::ranges::range_value_t<In>>(
                                   "reduce_scatter", engines::movement::to_all, std::ranges::size(in), -1, op, where),
                               detail::bind_check(detail::check_reduce_scatter, in, out, counts),
                               detail::call_reduce_scatter, group, detail::view_of(in), detail::view_of(out),
                               std::move(counts), op);
}

// Calls that are refused; see call/refused_calls.hpp.

template <class In, class... Rest, class Why = detail::why_no_lasting_buffers<In, Rest...>>
  requires detail::refused<Why>
work<void> reduce_scatter_async(In&&, Rest&&...) = delete;  // a temporary buffer: see Why
void reduce_scatter_async(detail::any_device_range,
                          ...) = delete;  // device memory: include <hfcomm/nccl.hpp>, and pass a stream

}  // namespace hfcomm
