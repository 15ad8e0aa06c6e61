// SPDX-License-Identifier: MIT
#pragma once

#include <source_location>
#include <string>
#include <utility>
#include <vector>

#include <hfcomm/call/async.hpp>
#include <hfcomm/call/uneven.hpp>

namespace hfcomm {

namespace detail {

template <class In, class Out>
void reduce_scatter_parts(running_call& running, const operation& call, const In& in, Out&& out,
                          std::span<const std::size_t> counts, const process_group& group) {
  using T = std::ranges::range_value_t<In>;
  const auto rank = static_cast<std::size_t>(group.rank());
  const auto parts = parts_of(bytes_of(in), counts, sizeof(T));
  require_apart(running, bytes_of(in), writable_bytes_of(out), parts[rank]);
  const auto lengths = in_bytes(counts, sizeof(T));
  running.engine().reduce_scatter(call, bytes_of(in), lengths, writable_bytes_of(out));
}

}  // namespace detail

/// Reduces element by element and leaves each rank one of equal parts of the result, in rank order: `in` has
/// `out.size()` elements for each rank (usage_error otherwise). `out` may be this rank's own part of `in`. The bits are
/// those that `all_reduce` gives.
template <reducible_buffer In, writable_reducible_buffer Out>
  requires std::same_as<std::ranges::range_value_t<In>, std::ranges::range_value_t<Out>>
void reduce_scatter(const In& in, Out&& out, detail::op_for<std::ranges::range_value_t<In>> op = reduce_op::sum,
                    const process_group& group = world(),
                    std::source_location where = std::source_location::current()) {
  auto call = detail::reduction_call<std::ranges::range_value_t<In>>("reduce_scatter", movement::to_all,
                                                                     std::ranges::size(in), -1, op, where);
  detail::running_call running(group, call);
  detail::require_valid(running, call);
  detail::require_memory(running, in);
  detail::require_memory(running, out);
  running.require(detail::is_one_for_each(std::ranges::size(in), std::ranges::size(out), group.size()), [&] {
    return "the input has " + std::to_string(std::ranges::size(in)) + " elements, but " + std::to_string(group.size()) +
           " ranks get " + std::to_string(std::ranges::size(out)) + " each";
  });
  detail::reduce_scatter_parts(running, call, in, out, detail::equal_counts(std::ranges::size(out), group.size()),
                               group);
}

/// Reduces element by element and leaves rank r `counts[r]` elements of the result, one part behind the other. The
/// counts are the same on all ranks (mismatch_error otherwise), their sum is `in`'s length, and this rank's is `out`'s.
template <reducible_buffer In, writable_reducible_buffer Out>
  requires std::same_as<std::ranges::range_value_t<In>, std::ranges::range_value_t<Out>>
void reduce_scatter(const In& in, Out&& out, std::span<const std::size_t> counts,
                    detail::op_for<std::ranges::range_value_t<In>> op = reduce_op::sum,
                    const process_group& group = world(),
                    std::source_location where = std::source_location::current()) {
  using T = std::ranges::range_value_t<In>;
  auto call = detail::reduction_call<T>("reduce_scatter", movement::to_all, std::ranges::size(in), -1, op, where);
  call.type_hash = detail::mix(call.type_hash, detail::fingerprint(counts));
  detail::running_call running(group, call);
  detail::require_valid(running, call);
  detail::require_memory(running, in);
  detail::require_memory(running, out);
  detail::require_length(running, std::ranges::size(in),
                         detail::require_counts(running, counts, group.size(), "the input"), "the input");
  running.require(std::ranges::size(out) == counts[static_cast<std::size_t>(group.rank())], [&] {
    return "the output has " + std::to_string(std::ranges::size(out)) + " elements, the count of rank " +
           std::to_string(group.rank()) + " is " + std::to_string(counts[static_cast<std::size_t>(group.rank())]);
  });
  detail::reduce_scatter_parts(running, call, in, out, counts, group);
}

/// Starts a reduce-scatter; both buffers must stay until the work is done.
template <lasting_buffer In, lasting_buffer Out>
  requires reducible_buffer<In> && writable_reducible_buffer<Out> &&
           std::same_as<std::ranges::range_value_t<In>, std::ranges::range_value_t<Out>>
work<void> reduce_scatter_async(In&& in, Out&& out, detail::op_for<std::ranges::range_value_t<In>> op = reduce_op::sum,
                                const process_group& group = world(),
                                std::source_location where = std::source_location::current()) {
  return detail::start("reduce_scatter", group, where,
                       [in = detail::view_of(in), out = detail::view_of(out), op, group, where] {
                         reduce_scatter(in, out, op, group, where);
                       });
}

template <lasting_buffer In, lasting_buffer Out>
  requires reducible_buffer<In> && writable_reducible_buffer<Out> &&
           std::same_as<std::ranges::range_value_t<In>, std::ranges::range_value_t<Out>>
work<void> reduce_scatter_async(In&& in, Out&& out, std::vector<std::size_t> counts,
                                detail::op_for<std::ranges::range_value_t<In>> op = reduce_op::sum,
                                const process_group& group = world(),
                                std::source_location where = std::source_location::current()) {
  return detail::start("reduce_scatter", group, where,
                       [in = detail::view_of(in), out = detail::view_of(out), counts = std::move(counts), op, group,
                        where] { reduce_scatter(in, out, counts, op, group, where); });
}

}  // namespace hfcomm
