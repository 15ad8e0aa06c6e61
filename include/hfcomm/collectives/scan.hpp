// SPDX-License-Identifier: MIT
#pragma once

#include <source_location>
#include <span>
#include <utility>

#include <hfcomm/call/async.hpp>
#include <hfcomm/call/refused_calls.hpp>
#include <hfcomm/collectives/detail/prefix.hpp>

namespace hfcomm {

/// Reduces, element by element, the `in` of this rank and of the ranks before it into `out`, which is as long as `in`
/// (usage_error otherwise). `out` may be `in` itself, but must not overlap it otherwise. The bits are those that
/// `all_reduce` gives in a group of these ranks. Each rank reads the elements of the ranks before it, in chunks. It
/// uses memory for at most 4 MiB of them at a time. (MPI's `MPI_Scan`.)
template <reducible_buffer In, writable_reducible_buffer Out>
  requires std::same_as<std::ranges::range_value_t<In>, std::ranges::range_value_t<Out>>
void scan(const In& in, Out&& out, detail::scan_op_for<std::ranges::range_value_t<In>> op = reduce_op::sum,
          const process_group& group = world(), std::source_location where = std::source_location::current()) {
  detail::scan_elements<std::ranges::range_value_t<In>>(
      "scan", detail::elements_of(in), detail::writable_elements_of(out), group.rank() + 1, op, group, where);
}

/// Scans element by element, in place.
template <writable_reducible_buffer R>
void scan(R&& data, detail::scan_op_for<std::ranges::range_value_t<R>> op = reduce_op::sum,
          const process_group& group = world(), std::source_location where = std::source_location::current()) {
  scan(data, data, op, group, where);
}

/// Returns the reduction of this rank's number and those of the ranks before it.
template <reducible_element T>
[[nodiscard]] T scan(const T& value, detail::scan_op_for<T> op = reduce_op::sum, const process_group& group = world(),
                     std::source_location where = std::source_location::current()) {
  T copy = value;
  scan(std::span(&copy, 1), op, group, where);
  return copy;
}

/// Returns `op(op(value0, value1), value2)...` of the objects of this rank and of the ranks before it, by any callable.
/// An exception of the callable is thrown on its rank only: the other ranks have all objects by then.
template <serializable T, detail::combines_objects<T> BinaryOp>
[[nodiscard]] T scan(const T& value, BinaryOp op, const process_group& group = world(),
                     std::source_location where = std::source_location::current()) {
  return detail::fold(detail::collect_first_objects("scan", value, group.rank() + 1, group, where), op);
}

/// Folds, element by element, the `in` of this rank and of the ranks before it into `out`, by any callable. The
/// elements may be of any plain type. An exception of the callable is thrown on its rank, and peer_error on the others.
/// A part of the elements may then have been folded already. Otherwise as `scan` with a `reduce_op`, which is faster.
template <buffer In, writable_buffer Out, class BinaryOp>
  requires std::same_as<std::ranges::range_value_t<In>, std::ranges::range_value_t<Out>> &&
           combines<BinaryOp, std::ranges::range_value_t<In>>
void scan(const In& in, Out&& out, BinaryOp op, const process_group& group = world(),
          std::source_location where = std::source_location::current()) {
  using T = std::ranges::range_value_t<In>;
  const auto results = detail::view_of(out);
  const auto fold = [&](std::size_t offset, std::size_t bytes, std::span<const std::byte> table) {
    detail::fold_part(results.subspan(offset / sizeof(T), bytes / sizeof(T)), table, op);
  };
  const auto elements = detail::elements_of(in);
  detail::scan_by_fold(detail::buffer_call<T>("scan", engines::movement::to_all, elements.count, -1, where), elements,
                       detail::writable_elements_of(out), group.rank() + 1, fold, group);
}

/// The same in place, for a view (std::span) or shared_buffer. (An owning container is one object, for a callable on
/// whole containers.)
template <buffer_view R, class BinaryOp>
  requires writable_buffer<R> && combines<BinaryOp, std::ranges::range_value_t<R>>
void scan(R&& data, BinaryOp op, const process_group& group = world(),
          std::source_location where = std::source_location::current()) {
  scan(data, data, std::move(op), group, where);
}

// Calls that are refused; see call/refused_calls.hpp.

template <class T, class... Rest, class Why = detail::why_not_reduced<T, Rest...>>
  requires detail::refused<Why>
std::decay_t<T> scan(T&&, Rest&&...) = delete;  // Why says the reason and what to do
template <class T, class Op, class... Rest, class Why = detail::why_ambiguous<T, Op>>
  requires detail::refused<Why>
std::decay_t<T> scan(T&&, Op&&, Rest&&...) = delete;  // wrap it in std::span: see Why

namespace detail {

/// The overloads of `scan`, as one function object.
inline constexpr auto call_scan = [](auto&&... arguments) {
  return hfcomm::scan(std::forward<decltype(arguments)>(arguments)...);
};

}  // namespace detail

/// Starts to scan element by element; both buffers must stay until the work is done.
template <lasting_buffer In, lasting_buffer Out>
  requires reducible_buffer<In> && writable_reducible_buffer<Out> &&
           std::same_as<std::ranges::range_value_t<In>, std::ranges::range_value_t<Out>>
work<void> scan_async(In&& in, Out&& out, detail::scan_op_for<std::ranges::range_value_t<In>> op = reduce_op::sum,
                      const process_group& group = world(),
                      std::source_location where = std::source_location::current()) {
  return detail::start_checked(detail::reduction_call_without_kernel<std::ranges::range_value_t<In>>(
                                   "scan", engines::movement::to_all, std::ranges::size(in), -1, op, where),
                               detail::bind_check(detail::check_scan, in, out), detail::call_scan, group,
                               detail::view_of(in), detail::view_of(out), op);
}

/// Starts to scan element by element, in place; the buffer must stay, untouched, until the work is done.
template <lasting_buffer R>
  requires writable_reducible_buffer<R>
work<void> scan_async(R&& data, detail::scan_op_for<std::ranges::range_value_t<R>> op = reduce_op::sum,
                      const process_group& group = world(),
                      std::source_location where = std::source_location::current()) {
  return detail::start_checked(detail::reduction_call_without_kernel<std::ranges::range_value_t<R>>(
                                   "scan", engines::movement::to_all, std::ranges::size(data), -1, op, where),
                               detail::bind_check(detail::check_scan, data, data), detail::call_scan, group,
                               detail::view_of(data), op);
}

/// Starts to scan one number per rank; the work's value is this rank's result.
template <reducible_element T>
work<T> scan_async(T value, detail::scan_op_for<T> op = reduce_op::sum, const process_group& group = world(),
                   std::source_location where = std::source_location::current()) {
  const std::span element(&value, 1);
  return detail::start_checked(
      detail::reduction_call_without_kernel<T>("scan", engines::movement::to_all, 1, -1, op, where),
      detail::bind_check(detail::check_scan, element, element), detail::call_scan, group, value, op);
}

/// Starts to scan one object per rank, which is copied; the callable runs on another thread.
template <serializable T, detail::combines_objects<T> BinaryOp>
work<T> scan_async(T value, BinaryOp op, const process_group& group = world(),
                   std::source_location where = std::source_location::current()) {
  return detail::start("scan", detail::call_scan, group, where, std::move(value), std::move(op));
}

/// Starts to fold a view's elements, in place; they must stay, untouched, until the work is done.
template <buffer_view R, class BinaryOp>
  requires writable_buffer<R> && lasting_buffer<R> && combines<BinaryOp, std::ranges::range_value_t<R>>
work<void> scan_async(R&& data, BinaryOp op, const process_group& group = world(),
                      std::source_location where = std::source_location::current()) {
  return detail::start_checked(detail::buffer_call<std::ranges::range_value_t<R>>("scan", engines::movement::to_all,
                                                                                  std::ranges::size(data), -1, where),
                               detail::bind_check(detail::check_contribution, data), detail::call_scan, group,
                               detail::view_of(data), std::move(op));
}

}  // namespace hfcomm
