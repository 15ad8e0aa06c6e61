// SPDX-License-Identifier: MIT
#pragma once

#include <source_location>
#include <span>
#include <utility>

#include <hfcomm/call/async.hpp>
#include <hfcomm/call/refused_calls.hpp>
#include <hfcomm/collectives/detail/prefix.hpp>

namespace hfcomm {

/// Reduces, element by element, the `in` of the ranks before this one into `out`, which is as long as `in` (usage_error
/// otherwise). On rank 0, each element of `out` becomes the reduction's identity: 0 for a sum and for bitwise or and
/// xor, 1 for a product, all bits for a bitwise and, the greatest number (infinity) for a minimum, the lowest for a
/// maximum. Otherwise as `scan`. (MPI's `MPI_Exscan`, which leaves rank 0's elements undefined.)
///
/// Write `hfcomm::exclusive_scan`: next to <numeric>, a call without the namespace may be ambiguous.
template <reducible_buffer In, writable_reducible_buffer Out>
  requires std::same_as<std::ranges::range_value_t<In>, std::ranges::range_value_t<Out>>
void exclusive_scan(const In& in, Out&& out, detail::scan_op_for<std::ranges::range_value_t<In>> op = reduce_op::sum,
                    const process_group& group = world(),
                    std::source_location where = std::source_location::current()) {
  detail::scan_elements<std::ranges::range_value_t<In>>(
      "exclusive_scan", detail::elements_of(in), detail::writable_elements_of(out), group.rank(), op, group, where);
}

/// Scans element by element, in place, without this rank's own elements.
template <writable_reducible_buffer R>
void exclusive_scan(R&& data, detail::scan_op_for<std::ranges::range_value_t<R>> op = reduce_op::sum,
                    const process_group& group = world(),
                    std::source_location where = std::source_location::current()) {
  hfcomm::exclusive_scan(data, data, op, group, where);
}

/// Returns the reduction of the numbers of the ranks before this one; on rank 0 the reduction's identity. So the sum of
/// the ranks' counts is where this rank's part begins.
template <reducible_element T>
[[nodiscard]] T exclusive_scan(const T& value, detail::scan_op_for<T> op = reduce_op::sum,
                               const process_group& group = world(),
                               std::source_location where = std::source_location::current()) {
  T copy = value;
  hfcomm::exclusive_scan(std::span(&copy, 1), op, group, where);
  return copy;
}

/// Returns `op(op(init, value0), value1)...` of the objects of the ranks before this one, by any callable; on rank 0
/// `init`. Each rank begins with its own `init`, which is not compared. An exception of the callable is thrown on its
/// rank only. (`std::exclusive_scan` over the ranks.)
template <serializable T, detail::combines_objects<T> BinaryOp>
[[nodiscard]] T exclusive_scan(const T& value, std::type_identity_t<T> init, BinaryOp op,
                               const process_group& group = world(),
                               std::source_location where = std::source_location::current()) {
  std::vector<T> values = detail::collect_first_objects("exclusive_scan", value, group.rank(), group, where);
  values.insert(values.begin(), std::move(init));
  return detail::fold(std::move(values), op);
}

/// Folds, element by element, the `in` of the ranks before this one into `out`, by any callable, beginning with `init`.
/// On rank 0 each element of `out` becomes `init`. Otherwise as `scan` with a callable.
template <buffer In, writable_buffer Out, class BinaryOp>
  requires std::same_as<std::ranges::range_value_t<In>, std::ranges::range_value_t<Out>> &&
           combines<BinaryOp, std::ranges::range_value_t<In>>
void exclusive_scan(const In& in, Out&& out, std::ranges::range_value_t<In> init, BinaryOp op,
                    const process_group& group = world(),
                    std::source_location where = std::source_location::current()) {
  using T = std::ranges::range_value_t<In>;
  const auto results = detail::view_of(out);
  const auto fold = [&](std::size_t offset, std::size_t bytes, std::span<const std::byte> table) {
    detail::fold_part_from(init, results.subspan(offset / sizeof(T), bytes / sizeof(T)), table, op);
  };
  const auto elements = detail::elements_of(in);
  detail::scan_by_fold(detail::buffer_call<T>("exclusive_scan", engines::movement::to_all, elements.count, -1, where),
                       elements, detail::writable_elements_of(out), group.rank(), fold, group);
}

/// The same in place, for a view (std::span) or shared_buffer.
template <buffer_view R, class BinaryOp>
  requires writable_buffer<R> && combines<BinaryOp, std::ranges::range_value_t<R>>
void exclusive_scan(R&& data, std::ranges::range_value_t<R> init, BinaryOp op, const process_group& group = world(),
                    std::source_location where = std::source_location::current()) {
  hfcomm::exclusive_scan(data, data, init, std::move(op), group, where);
}

// Calls that are refused; see call/refused_calls.hpp.

template <class T, class Init, class Op, class... Rest, class Why = detail::why_ambiguous<T, Op>>
  requires detail::refused<Why>
std::decay_t<T> exclusive_scan(T&&, Init&&, Op&&, Rest&&...) = delete;  // wrap it in std::span: see Why

namespace detail {

/// The overloads of `exclusive_scan`, as one function object.
inline constexpr auto call_exclusive_scan = [](auto&&... arguments) {
  return hfcomm::exclusive_scan(std::forward<decltype(arguments)>(arguments)...);
};

}  // namespace detail

/// Starts to scan element by element; both buffers must stay until the work is done.
template <lasting_buffer In, lasting_buffer Out>
  requires reducible_buffer<In> && writable_reducible_buffer<Out> &&
           std::same_as<std::ranges::range_value_t<In>, std::ranges::range_value_t<Out>>
work<void> exclusive_scan_async(In&& in, Out&& out,
                                detail::scan_op_for<std::ranges::range_value_t<In>> op = reduce_op::sum,
                                const process_group& group = world(),
                                std::source_location where = std::source_location::current()) {
  return detail::start_checked(detail::reduction_call_without_kernel<std::ranges::range_value_t<In>>(
                                   "exclusive_scan", engines::movement::to_all, std::ranges::size(in), -1, op, where),
                               detail::bind_check(detail::check_scan, in, out), detail::call_exclusive_scan, group,
                               detail::view_of(in), detail::view_of(out), op);
}

/// Starts to scan element by element, in place; the buffer must stay, untouched, until the work is done.
template <lasting_buffer R>
  requires writable_reducible_buffer<R>
work<void> exclusive_scan_async(R&& data, detail::scan_op_for<std::ranges::range_value_t<R>> op = reduce_op::sum,
                                const process_group& group = world(),
                                std::source_location where = std::source_location::current()) {
  return detail::start_checked(detail::reduction_call_without_kernel<std::ranges::range_value_t<R>>(
                                   "exclusive_scan", engines::movement::to_all, std::ranges::size(data), -1, op, where),
                               detail::bind_check(detail::check_scan, data, data), detail::call_exclusive_scan, group,
                               detail::view_of(data), op);
}

/// Starts to scan one number per rank; the work's value is this rank's result.
template <reducible_element T>
work<T> exclusive_scan_async(T value, detail::scan_op_for<T> op = reduce_op::sum, const process_group& group = world(),
                             std::source_location where = std::source_location::current()) {
  const std::span element(&value, 1);
  return detail::start_checked(
      detail::reduction_call_without_kernel<T>("exclusive_scan", engines::movement::to_all, 1, -1, op, where),
      detail::bind_check(detail::check_scan, element, element), detail::call_exclusive_scan, group, value, op);
}

/// Starts to scan one object per rank; the objects are copied, and the callable runs on another thread.
template <serializable T, detail::combines_objects<T> BinaryOp>
work<T> exclusive_scan_async(T value, std::type_identity_t<T> init, BinaryOp op, const process_group& group = world(),
                             std::source_location where = std::source_location::current()) {
  return detail::start("exclusive_scan", detail::call_exclusive_scan, group, where, std::move(value), std::move(init),
                       std::move(op));
}

/// Starts to fold a view's elements, in place; they must stay, untouched, until the work is done.
template <buffer_view R, class BinaryOp>
  requires writable_buffer<R> && lasting_buffer<R> && combines<BinaryOp, std::ranges::range_value_t<R>>
work<void> exclusive_scan_async(R&& data, std::ranges::range_value_t<R> init, BinaryOp op,
                                const process_group& group = world(),
                                std::source_location where = std::source_location::current()) {
  return detail::start_checked(detail::buffer_call<std::ranges::range_value_t<R>>(
                                   "exclusive_scan", engines::movement::to_all, std::ranges::size(data), -1, where),
                               detail::bind_check(detail::check_contribution, data), detail::call_exclusive_scan, group,
                               detail::view_of(data), init, std::move(op));
}

}  // namespace hfcomm
