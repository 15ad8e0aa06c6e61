// SPDX-License-Identifier: MIT
#pragma once

#include <span>
#include <utility>

#include <hfcomm/call/async.hpp>
#include <hfcomm/call/refused_calls.hpp>
#include <hfcomm/collectives/detail/prefix.hpp>
#include <hfcomm/core/call_site.hpp>

namespace hfcomm {

namespace detail {

/// Returns `op(op(init, value0), value1)...` of the objects of the ranks before this one.
template <class T, class BinaryOp>
T fold_from(T init, operation&& call, const T& value, BinaryOp& op, const process_group& group) {
  std::vector<T> values = collect_objects(std::move(call), value, group.rank(), group);
  values.insert(values.begin(), std::move(init));
  return fold(std::move(values), op);
}

}  // namespace detail

/// Reduces, element by element, the `in` of the ranks before this one into `out`, which is as long as `in` (usage_error
/// otherwise). On rank 0, each element of `out` becomes the reduction's identity: 0 for a sum and for bitwise or and
/// xor, 1 for a product, all bits for a bitwise and, the greatest number (infinity) for a minimum, the lowest for a
/// maximum. Otherwise as `scan`. (MPI's `MPI_Exscan`, which leaves rank 0's elements undefined.)
///
/// Write `hfcomm::exclusive_scan`: next to <numeric>, a call without the namespace may be ambiguous.
template <reducible_buffer In, detail::output_for<In> Out>
void exclusive_scan(const In& in, Out&& out, detail::scan_op_on<In> op = reduce_op::sum, detail::or_group group = {},
                    call_site where = call_site::current()) {
  detail::exclusive_scan_buffer(detail::reduction_call("exclusive_scan", engines::movement::to_all, in, -1, op, where),
                                detail::elements_of(in), detail::writable_elements_of(out), op.in(group, where));
}

/// Scans element by element, in place, without this rank's own elements.
template <writable_reducible_buffer R>
void exclusive_scan(R&& data, detail::scan_op_on<R> op = reduce_op::sum, detail::or_group group = {},
                    call_site where = call_site::current()) {
  hfcomm::exclusive_scan(data, data, op, group, where);
}

/// Returns the reduction of the numbers of the ranks before this one; on rank 0 the reduction's identity. So the sum of
/// the ranks' counts is where this rank's part begins.
template <reducible_element T>
[[nodiscard]] T exclusive_scan(const T& value, detail::scan_op_for<T> op = reduce_op::sum, detail::or_group group = {},
                               call_site where = call_site::current()) {
  return detail::reduce_number<T>(
      detail::reduction_call<T>("exclusive_scan", engines::movement::to_all, 1, -1, op, where),
      detail::exclusive_scan_buffer, value, op.in(group, where));
}

/// Returns `op(op(init, value0), value1)...` of the objects of the ranks before this one, by any callable; on rank 0
/// `init`. Each rank begins with its own `init`, which is not compared. An exception of the callable is thrown on its
/// rank only. (`std::exclusive_scan` over the ranks.)
template <serializable T, detail::combines_objects<T> BinaryOp>
[[nodiscard]] T exclusive_scan(const T& value, std::type_identity_t<T> init, BinaryOp op,
                               const process_group& group = world(), call_site where = call_site::current()) {
  return detail::fold_from(std::move(init),
                           detail::object_call<T>("exclusive_scan", engines::movement::to_all, -1, where), value, op,
                           group);
}

/// Folds, element by element, the `in` of the ranks before this one into `out`, by any callable, beginning with `init`.
/// On rank 0 each element of `out` becomes `init`. Otherwise as `scan` with a callable.
template <buffer In, detail::output_for<In> Out, class BinaryOp>
  requires combines<BinaryOp, detail::value_of<In>>
void exclusive_scan(const In& in, Out&& out, detail::value_of<In> init, BinaryOp op,
                    const process_group& group = world(), call_site where = call_site::current()) {
  detail::scan_by_fold(detail::buffer_call("exclusive_scan", engines::movement::to_all, in, -1, where),
                       detail::elements_of(in), detail::writable_elements_of(out), group.rank(),
                       detail::fold_into(detail::view_of(out), &init, op), group);
}

/// The same in place, for a view (std::span) or shared_buffer.
template <buffer_view R, class BinaryOp>
  requires writable_buffer<R> && combines<BinaryOp, detail::value_of<R>>
void exclusive_scan(R&& data, detail::value_of<R> init, BinaryOp op, const process_group& group = world(),
                    call_site where = call_site::current()) {
  hfcomm::exclusive_scan(data, data, init, std::move(op), group, where);
}

// Calls that are refused; see call/refused_calls.hpp.

template <class... A, class Why = detail::reason_of<detail::refuse_exclusive_scan<A...>()>>
detail::refused_result exclusive_scan(A&&...) = delete;  // Why says the reason and what to do

/// Starts to scan element by element; both buffers must stay until the work is done.
template <detail::lasting_reducible_buffer In, detail::lasting_output_for<In> Out>
work<void> exclusive_scan_async(In&& in, Out&& out, detail::scan_op_on<In> op = reduce_op::sum,
                                detail::or_group group = {}, call_site where = call_site::current()) {
  return detail::start_on_buffers(
      detail::reduction_call("exclusive_scan", engines::movement::to_all, in, -1, op, where), detail::check_scan,
      detail::exclusive_scan_buffer, in, out, op.in(group, where));
}

/// Starts to scan element by element, in place; the buffer must stay, untouched, until the work is done.
template <detail::lasting_reducible_buffer R>
  requires writable_buffer<R>
work<void> exclusive_scan_async(R&& data, detail::scan_op_on<R> op = reduce_op::sum, detail::or_group group = {},
                                call_site where = call_site::current()) {
  return exclusive_scan_async(data, data, op, group, where);
}

/// Starts to scan one number per rank; the work's value is this rank's result.
template <reducible_element T>
work<T> exclusive_scan_async(T value, detail::scan_op_for<T> op = reduce_op::sum, detail::or_group group = {},
                             call_site where = call_site::current()) {
  return detail::start_on_number<T>(
      detail::reduction_call<T>("exclusive_scan", engines::movement::to_all, 1, -1, op, where), detail::check_scan,
      detail::exclusive_scan_buffer, value, op.in(group, where));
}

/// Starts to scan one object per rank; the objects are copied, and the callable runs on another thread.
template <serializable T, detail::combines_objects<T> BinaryOp>
work<T> exclusive_scan_async(T value, std::type_identity_t<T> init, BinaryOp op, const process_group& group = world(),
                             call_site where = call_site::current()) {
  const auto run = [](engines::operation&& call, const T& mine, T& first, BinaryOp& its_op,
                      const process_group& its_group) {
    return detail::fold_from(std::move(first), std::move(call), mine, its_op, its_group);
  };
  return detail::start_on(detail::object_call<T>("exclusive_scan", engines::movement::to_all, -1, where),
                          detail::check_root_if_any, run, group, std::move(value), std::move(init), std::move(op));
}

/// Starts to fold a view's elements, in place; they must stay, untouched, until the work is done.
template <buffer_view R, class BinaryOp>
  requires writable_buffer<R> && lasting_buffer<R> && combines<BinaryOp, detail::value_of<R>>
work<void> exclusive_scan_async(R&& data, detail::value_of<R> init, BinaryOp op, const process_group& group = world(),
                                call_site where = call_site::current()) {
  const auto run = [init](engines::operation&& call, auto own, BinaryOp& its_op, const process_group& its_group) {
    hfcomm::exclusive_scan(own, init, std::move(its_op), its_group, call.where);
  };
  return detail::start_on(detail::buffer_call("exclusive_scan", engines::movement::to_all, data, -1, where),
                          detail::check_fold, run, group, detail::view_of(data), std::move(op));
}

// Calls that are refused; see call/refused_calls.hpp.

template <class... A, class Why = detail::reason_of<detail::refuse_exclusive_scan_later<A...>()>>
detail::refused_result exclusive_scan_async(A&&...) = delete;  // Why says the reason and what to do

}  // namespace hfcomm
