// SPDX-License-Identifier: MIT
#pragma once

#include <source_location>
#include <type_traits>
#include <utility>

#include <hfcomm/call/async.hpp>
#include <hfcomm/call/refused_calls.hpp>
#include <hfcomm/collectives/detail/buffer_collectives.hpp>
#include <hfcomm/collectives/detail/fold_elements.hpp>

namespace hfcomm {

/// Reduces element by element into every rank's `out`, which is as long as `in` (usage_error otherwise). `out` may be
/// `in` itself, but must not overlap it otherwise. All ranks get the same bits, from run to run too.
template <reducible_buffer In, writable_reducible_buffer Out>
  requires std::same_as<std::ranges::range_value_t<In>, std::ranges::range_value_t<Out>>
void all_reduce(const In& in, Out&& out, detail::op_for<std::ranges::range_value_t<In>> op = reduce_op::sum,
                const process_group& group = world(), std::source_location where = std::source_location::current()) {
  detail::all_reduce_buffer(detail::reduction_call<std::ranges::range_value_t<In>>(
                                "all_reduce", engines::movement::to_all, std::ranges::size(in), -1, op, where),
                            detail::elements_of(in), detail::writable_elements_of(out), group);
}

/// Reduces element by element, in place, on every rank.
template <writable_reducible_buffer R>
void all_reduce(R&& data, detail::op_for<std::ranges::range_value_t<R>> op = reduce_op::sum,
                const process_group& group = world(), std::source_location where = std::source_location::current()) {
  all_reduce(data, data, op, group, where);
}

/// Returns the reduction of one number per rank, on every rank.
template <reducible_element T>
[[nodiscard]] T all_reduce(const T& value, detail::op_for<T> op = reduce_op::sum, const process_group& group = world(),
                           std::source_location where = std::source_location::current()) {
  T copy = value;
  all_reduce(std::span(&copy, 1), op, group, where);
  return copy;
}

/// Returns one object per rank, folded in rank order by any callable, on every rank: `op(op(value0, value1),
/// value2)...`. The callable runs on every rank on equal arguments, so a deterministic one gives every rank the same
/// result.
template <serializable T, detail::combines_objects<T> BinaryOp>
[[nodiscard]] T all_reduce(const T& value, BinaryOp op, const process_group& group = world(),
                           std::source_location where = std::source_location::current()) {
  return detail::fold(detail::collect_objects("all_reduce", engines::movement::to_all, value, -1, group, where), op);
}

/// Reduces a view (std::span) or shared_buffer element by element and in place, on every rank, by any callable. The
/// elements may be of any plain type. The result is `op(op(element0, element1), element2)...` in rank order. The
/// callable runs on every rank on equal arguments, element after element, so a deterministic one gives every rank the
/// same result. It uses memory for at most 4 MiB of elements at a time. A reduction that `reduce_op` has is much
/// faster. (An owning container is one object, for a callable on whole containers.)
///
/// An exception of the callable is thrown on its rank, and peer_error on the others. A part of the elements may then
/// have been reduced already.
template <buffer_view R, class BinaryOp>
  requires writable_buffer<R> && combines<BinaryOp, std::ranges::range_value_t<R>>
void all_reduce(R&& data, BinaryOp op, const process_group& group = world(),
                std::source_location where = std::source_location::current()) {
  detail::fold_elements("all_reduce", engines::movement::to_all, std::span<std::ranges::range_value_t<R>>(data), -1, op,
                        group, where);
}

// Calls that are refused; see call/refused_calls.hpp.

template <class T, class... Rest, class Why = detail::why_not_reduced<T, Rest...>>
  requires detail::refused<Why>
std::decay_t<T> all_reduce(T&&, Rest&&...) = delete;  // Why says the reason and what to do
template <class T, class Op, class... Rest, class Why = detail::why_ambiguous<T, Op>>
  requires detail::refused<Why>
std::decay_t<T> all_reduce(T&&, Op&&, Rest&&...) = delete;  // wrap it in std::span: see Why
void all_reduce(detail::any_device_range, ...) = delete;  // device memory: include <hfcomm/nccl.hpp>, and pass a stream

namespace detail {

/// The overloads of `all_reduce`, as one function object.
inline constexpr auto call_all_reduce = [](auto&&... arguments) {
  return hfcomm::all_reduce(std::forward<decltype(arguments)>(arguments)...);
};

}  // namespace detail

/// Starts to reduce element by element; both buffers must stay until the work is done.
template <lasting_buffer In, lasting_buffer Out>
  requires reducible_buffer<In> && writable_reducible_buffer<Out> &&
           std::same_as<std::ranges::range_value_t<In>, std::ranges::range_value_t<Out>>
work<void> all_reduce_async(In&& in, Out&& out, detail::op_for<std::ranges::range_value_t<In>> op = reduce_op::sum,
                            const process_group& group = world(),
                            std::source_location where = std::source_location::current()) {
  return detail::start_checked(detail::reduction_call_without_kernel<std::ranges::range_value_t<In>>(
                                   "all_reduce", engines::movement::to_all, std::ranges::size(in), -1, op, where),
                               detail::bind_check(detail::check_all_reduce, in, out), detail::call_all_reduce, group,
                               detail::view_of(in), detail::view_of(out), op);
}

/// Starts to reduce element by element, in place; the buffer must stay, untouched, until the work is done.
template <lasting_buffer R>
  requires writable_reducible_buffer<R>
work<void> all_reduce_async(R&& data, detail::op_for<std::ranges::range_value_t<R>> op = reduce_op::sum,
                            const process_group& group = world(),
                            std::source_location where = std::source_location::current()) {
  return detail::start_checked(detail::reduction_call_without_kernel<std::ranges::range_value_t<R>>(
                                   "all_reduce", engines::movement::to_all, std::ranges::size(data), -1, op, where),
                               detail::bind_check(detail::check_all_reduce, data, data), detail::call_all_reduce, group,
                               detail::view_of(data), op);
}

/// Starts to reduce one number per rank; the work's value is the result.
template <reducible_element T>
work<T> all_reduce_async(T value, detail::op_for<T> op = reduce_op::sum, const process_group& group = world(),
                         std::source_location where = std::source_location::current()) {
  const std::span element(&value, 1);
  return detail::start_checked(
      detail::reduction_call_without_kernel<T>("all_reduce", engines::movement::to_all, 1, -1, op, where),
      detail::bind_check(detail::check_all_reduce, element, element), detail::call_all_reduce, group, value, op);
}

/// Starts to fold one object per rank, which is copied; the callable runs on another thread.
template <serializable T, detail::combines_objects<T> BinaryOp>
work<T> all_reduce_async(T value, BinaryOp op, const process_group& group = world(),
                         std::source_location where = std::source_location::current()) {
  return detail::start("all_reduce", detail::call_all_reduce, group, where, std::move(value), std::move(op));
}

/// Starts to fold a view's elements, in place; they must stay, untouched, until the work is done.
template <buffer_view R, class BinaryOp>
  requires writable_buffer<R> && lasting_buffer<R> && combines<BinaryOp, std::ranges::range_value_t<R>>
work<void> all_reduce_async(R&& data, BinaryOp op, const process_group& group = world(),
                            std::source_location where = std::source_location::current()) {
  return detail::start_checked(detail::buffer_call<std::ranges::range_value_t<R>>(
                                   "all_reduce", engines::movement::to_all, std::ranges::size(data), -1, where),
                               detail::bind_check(detail::check_contribution, data), detail::call_all_reduce, group,
                               detail::view_of(data), std::move(op));
}

// Calls that are refused; see call/refused_calls.hpp.

template <class T, class... Rest, class Why = detail::why_not_reduced_async<T, Rest...>>
  requires detail::refused<Why>
work<std::decay_t<T>> all_reduce_async(T&&, Rest&&...) = delete;  // Why says the reason and what to do
template <class T, class Op, class... Rest, class Why = detail::why_ambiguous<T, Op>>
  requires detail::refused<Why>
work<std::decay_t<T>> all_reduce_async(T&&, Op&&, Rest&&...) = delete;  // wrap it in std::span: see Why
void all_reduce_async(detail::any_device_range,
                      ...) = delete;  // device memory: include <hfcomm/nccl.hpp>, and pass a stream

}  // namespace hfcomm
