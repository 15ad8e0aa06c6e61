// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <source_location>
#include <type_traits>
#include <utility>

#include <hfcomm/call/async.hpp>
#include <hfcomm/call/refused_calls.hpp>
#include <hfcomm/collectives/detail/buffer_collectives.hpp>
#include <hfcomm/collectives/detail/fold_elements.hpp>

namespace hfcomm {

/// Reduces element by element into the root's `out`; elsewhere `out` is ignored and may be empty. Every rank's `in` is
/// unchanged. `out` may be the root's `in` itself, but must not overlap it otherwise.
template <reducible_buffer In, writable_reducible_buffer Out>
  requires std::same_as<std::ranges::range_value_t<In>, std::ranges::range_value_t<Out>>
void reduce(const In& in, Out&& out, int root, detail::op_for<std::ranges::range_value_t<In>> op = reduce_op::sum,
            const process_group& group = world(), std::source_location where = std::source_location::current()) {
  detail::reduce_buffer(detail::reduction_call<std::ranges::range_value_t<In>>("reduce", engines::movement::to_root,
                                                                               std::ranges::size(in), root, op, where),
                        detail::elements_of(in), detail::writable_elements_of(out), group);
}

/// Reduces element by element into the root's buffer, in place; the other ranks' buffers stay as they are. (torch
/// leaves those unspecified.)
template <writable_reducible_buffer R>
void reduce(R&& data, int root, detail::op_for<std::ranges::range_value_t<R>> op = reduce_op::sum,
            const process_group& group = world(), std::source_location where = std::source_location::current()) {
  reduce(data, data, root, op, group, where);
}

/// Returns the reduction of one number per rank on the root; nullopt elsewhere.
template <reducible_element T>
[[nodiscard]] std::optional<T> reduce(const T& value, int root, detail::op_for<T> op = reduce_op::sum,
                                      const process_group& group = world(),
                                      std::source_location where = std::source_location::current()) {
  T copy = value;
  reduce(std::span(&copy, 1), root, op, group, where);
  return group.rank() == root ? std::optional<T>(copy) : std::nullopt;
}

/// Returns one object per rank, folded in rank order by any callable, on the root; nullopt elsewhere.
template <serializable T, detail::combines_objects<T> BinaryOp>
[[nodiscard]] std::optional<T> reduce(const T& value, int root, BinaryOp op, const process_group& group = world(),
                                      std::source_location where = std::source_location::current()) {
  std::vector<T> values = detail::collect_objects("reduce", engines::movement::to_root, value, root, group, where);
  return values.empty() ? std::nullopt : std::optional<T>(detail::fold(std::move(values), op));
}

/// Reduces a view (std::span) or shared_buffer of plain elements element by element into the root's, in place, by any
/// callable. The callable runs on the root only, and the other ranks' elements are unchanged. An exception of the
/// callable is thrown on the root, and peer_error on the others. Otherwise as `all_reduce` with a callable.
template <buffer_view R, class BinaryOp>
  requires writable_buffer<R> && combines<BinaryOp, std::ranges::range_value_t<R>>
void reduce(R&& data, int root, BinaryOp op, const process_group& group = world(),
            std::source_location where = std::source_location::current()) {
  detail::fold_elements("reduce", engines::movement::to_root, std::span<std::ranges::range_value_t<R>>(data), root, op,
                        group, where);
}

// Calls that are refused; see call/refused_calls.hpp.

template <class T, class... Rest, class Why = detail::why_not_reduced<T, Rest...>>
  requires detail::refused<Why>
std::optional<std::decay_t<T>> reduce(T&&, int, Rest&&...) = delete;  // Why says the reason and what to do
template <class T, class Op, class... Rest, class Why = detail::why_ambiguous<T, Op>>
  requires detail::refused<Why>
std::optional<std::decay_t<T>> reduce(T&&, int, Op&&, Rest&&...) = delete;  // wrap it in std::span: see Why
void reduce(detail::any_device_range, ...) = delete;  // device memory: include <hfcomm/nccl.hpp>, and pass a stream

namespace detail {

/// The overloads of `reduce`, as one function object.
inline constexpr auto call_reduce = [](auto&&... arguments) {
  return hfcomm::reduce(std::forward<decltype(arguments)>(arguments)...);
};

}  // namespace detail

/// Starts to reduce into the root's `out`; both buffers must stay until the work is done.
template <lasting_buffer In, lasting_buffer Out>
  requires reducible_buffer<In> && writable_reducible_buffer<Out> &&
           std::same_as<std::ranges::range_value_t<In>, std::ranges::range_value_t<Out>>
work<void> reduce_async(In&& in, Out&& out, int root,
                        detail::op_for<std::ranges::range_value_t<In>> op = reduce_op::sum,
                        const process_group& group = world(),
                        std::source_location where = std::source_location::current()) {
  return detail::start_checked(detail::reduction_call_without_kernel<std::ranges::range_value_t<In>>(
                                   "reduce", engines::movement::to_root, std::ranges::size(in), root, op, where),
                               detail::bind_check(detail::check_reduce, in, out), detail::call_reduce, group,
                               detail::view_of(in), detail::view_of(out), root, op);
}

/// Starts to reduce into the root's buffer, in place; it must stay, untouched, until the work is done.
template <lasting_buffer R>
  requires writable_reducible_buffer<R>
work<void> reduce_async(R&& data, int root, detail::op_for<std::ranges::range_value_t<R>> op = reduce_op::sum,
                        const process_group& group = world(),
                        std::source_location where = std::source_location::current()) {
  return detail::start_checked(detail::reduction_call_without_kernel<std::ranges::range_value_t<R>>(
                                   "reduce", engines::movement::to_root, std::ranges::size(data), root, op, where),
                               detail::bind_check(detail::check_reduce, data, data), detail::call_reduce, group,
                               detail::view_of(data), root, op);
}

/// Starts to reduce one number per rank; the work's value is the result on the root, nullopt elsewhere.
template <reducible_element T>
work<std::optional<T>> reduce_async(T value, int root, detail::op_for<T> op = reduce_op::sum,
                                    const process_group& group = world(),
                                    std::source_location where = std::source_location::current()) {
  const std::span element(&value, 1);
  return detail::start_checked(
      detail::reduction_call_without_kernel<T>("reduce", engines::movement::to_root, 1, root, op, where),
      detail::bind_check(detail::check_reduce, element, element), detail::call_reduce, group, value, root, op);
}

/// Starts to fold one object per rank, which is copied, on the root; the callable runs on another thread.
template <serializable T, detail::combines_objects<T> BinaryOp>
work<std::optional<T>> reduce_async(T value, int root, BinaryOp op, const process_group& group = world(),
                                    std::source_location where = std::source_location::current()) {
  return detail::start_checked(detail::object_call<T>("reduce", engines::movement::to_root, root, where),
                               detail::check_root, detail::call_reduce, group, std::move(value), root, std::move(op));
}

/// Starts to fold a view's elements on the root, in place; they must stay, untouched, until the work is done.
template <buffer_view R, class BinaryOp>
  requires writable_buffer<R> && lasting_buffer<R> && combines<BinaryOp, std::ranges::range_value_t<R>>
work<void> reduce_async(R&& data, int root, BinaryOp op, const process_group& group = world(),
                        std::source_location where = std::source_location::current()) {
  return detail::start_checked(detail::buffer_call<std::ranges::range_value_t<R>>("reduce", engines::movement::to_root,
                                                                                  std::ranges::size(data), root, where),
                               detail::bind_check(detail::check_contribution, data), detail::call_reduce, group,
                               detail::view_of(data), root, std::move(op));
}

// Calls that are refused; see call/refused_calls.hpp.

template <class T, class... Rest, class Why = detail::why_not_reduced_async<T, Rest...>>
  requires detail::refused<Why>
work<std::optional<std::decay_t<T>>> reduce_async(T&&, int, Rest&&...) = delete;  // Why says the reason and what to do
template <class T, class Op, class... Rest, class Why = detail::why_ambiguous<T, Op>>
  requires detail::refused<Why>
work<std::optional<std::decay_t<T>>> reduce_async(T&&, int, Op&&, Rest&&...) = delete;  // wrap it in std::span: see Why
void reduce_async(detail::any_device_range,
                  ...) = delete;  // device memory: include <hfcomm/nccl.hpp>, and pass a stream

}  // namespace hfcomm
