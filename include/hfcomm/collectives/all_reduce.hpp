// SPDX-License-Identifier: MIT
#pragma once

#include <source_location>
#include <string>
#include <utility>

#include <hfcomm/collectives/call.hpp>

namespace hfcomm {

/// Reduces element by element into every rank's `out`, which is as long as `in` (usage_error otherwise). `out` may be
/// `in` itself, but not overlap it otherwise. All ranks get the same bits, from run to run too.
template <reducible_buffer In, writable_reducible_buffer Out>
  requires std::same_as<std::ranges::range_value_t<In>, std::ranges::range_value_t<Out>>
void all_reduce(const In& in, Out&& out, reduce_op op = reduce_op::sum, const process_group& group = world(),
                std::source_location where = std::source_location::current()) {
  auto call = detail::reduction_call<std::ranges::range_value_t<In>>("all_reduce", movement::to_all,
                                                                     std::ranges::size(in), -1, op, where);
  detail::running_call running(group, call);
  detail::require_valid(running, call);
  running.require(std::ranges::size(out) == std::ranges::size(in), [&] {
    return "the output has " + std::to_string(std::ranges::size(out)) + " elements, the input " +
           std::to_string(std::ranges::size(in));
  });
  running.engine().reduce(call, detail::bytes_of(in), detail::writable_bytes_of(out));
}

/// Reduces element by element, in place, on every rank.
template <writable_reducible_buffer R>
void all_reduce(R&& data, reduce_op op = reduce_op::sum, const process_group& group = world(),
                std::source_location where = std::source_location::current()) {
  all_reduce(data, data, op, group, where);
}

/// One number per rank, reduced on every rank.
template <reducible_element T>
[[nodiscard]] T all_reduce(const T& value, reduce_op op = reduce_op::sum, const process_group& group = world(),
                           std::source_location where = std::source_location::current()) {
  T copy = value;
  all_reduce(std::span(&copy, 1), op, group, where);
  return copy;
}

/// One object per rank, folded in rank order on every rank by any callable: `op(op(value0, value1), value2)...`. The
/// callable runs on every rank on equal arguments, so a deterministic one gives every rank the same result.
template <serializable T, combines<T> BinaryOp>
[[nodiscard]] T all_reduce(const T& value, BinaryOp op, const process_group& group = world(),
                           std::source_location where = std::source_location::current()) {
  return detail::fold(detail::collect_objects("all_reduce", movement::to_all, value, -1, group, where), op);
}

}  // namespace hfcomm
