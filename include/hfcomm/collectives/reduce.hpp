// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <source_location>
#include <string>
#include <utility>

#include <hfcomm/collectives/call.hpp>

namespace hfcomm {

/// Reduces element by element into the root's `out`; elsewhere `out` is not looked at and may be empty. Every rank's
/// `in` stays as it is. `out` may be the root's `in` itself, but not overlap it otherwise.
template <reducible_buffer In, writable_reducible_buffer Out>
  requires std::same_as<std::ranges::range_value_t<In>, std::ranges::range_value_t<Out>>
void reduce(const In& in, Out&& out, int root, reduce_op op = reduce_op::sum, const process_group& group = world(),
            std::source_location where = std::source_location::current()) {
  auto call = detail::reduction_call<std::ranges::range_value_t<In>>("reduce", movement::to_root, std::ranges::size(in),
                                                                     root, op, where);
  detail::running_call running(group, call);
  running.require_root();
  detail::require_valid(running, call);
  running.require(group.rank() != root || std::ranges::size(out) == std::ranges::size(in), [&] {
    return "the root's output has " + std::to_string(std::ranges::size(out)) + " elements, the input " +
           std::to_string(std::ranges::size(in));
  });
  running.engine().reduce(call, detail::bytes_of(in), detail::writable_bytes_of(out));
}

/// Reduces element by element into the root's buffer, in place; the other ranks' buffers stay as they are. (torch
/// leaves those unspecified.)
template <writable_reducible_buffer R>
void reduce(R&& data, int root, reduce_op op = reduce_op::sum, const process_group& group = world(),
            std::source_location where = std::source_location::current()) {
  reduce(data, data, root, op, group, where);
}

/// One number per rank, reduced on the root; nullopt elsewhere.
template <reducible_element T>
[[nodiscard]] std::optional<T> reduce(const T& value, int root, reduce_op op = reduce_op::sum,
                                      const process_group& group = world(),
                                      std::source_location where = std::source_location::current()) {
  T copy = value;
  reduce(std::span(&copy, 1), root, op, group, where);
  return group.rank() == root ? std::optional<T>(copy) : std::nullopt;
}

/// One object per rank, folded in rank order on the root by any callable; nullopt elsewhere.
template <serializable T, combines<T> BinaryOp>
[[nodiscard]] std::optional<T> reduce(const T& value, int root, BinaryOp op, const process_group& group = world(),
                                      std::source_location where = std::source_location::current()) {
  std::vector<T> values = detail::collect_objects("reduce", movement::to_root, value, root, group, where);
  return values.empty() ? std::nullopt : std::optional<T>(detail::fold(std::move(values), op));
}

}  // namespace hfcomm
