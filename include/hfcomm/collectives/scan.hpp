// SPDX-License-Identifier: MIT
#pragma once

#include <span>
#include <utility>

#include <hfcomm/call/async.hpp>
#include <hfcomm/call/refused_calls.hpp>
#include <hfcomm/collectives/detail/prefix.hpp>
#include <hfcomm/core/call_site.hpp>

namespace hfcomm {

/// Reduces, element by element, the `in` of this rank and of the ranks before it into `out`, which is as long as `in`
/// (usage_error otherwise). `out` may be `in` itself, but must not overlap it otherwise. The bits are those that
/// `all_reduce` gives in a group of these ranks. Each rank reads the elements of the ranks before it, in chunks. It
/// uses memory for at most 4 MiB of them at a time. (MPI's `MPI_Scan`.)
template <reducible_buffer In, detail::output_for<In> Out>
void scan(const In& in, Out&& out, detail::scan_op_on<In> op = reduce_op::sum, detail::or_group group = {},
          call_site where = call_site::current()) {
  detail::scan_buffer(detail::reduction_call("scan", engines::movement::to_all, in, -1, op, where),
                      detail::elements_of(in), detail::writable_elements_of(out), op.in(group, where));
}

/// Scans element by element, in place.
template <writable_reducible_buffer R>
void scan(R&& data, detail::scan_op_on<R> op = reduce_op::sum, detail::or_group group = {},
          call_site where = call_site::current()) {
  scan(data, data, op, group, where);
}

/// Returns the reduction of this rank's number and those of the ranks before it.
template <reducible_element T>
[[nodiscard]] T scan(const T& value, detail::scan_op_for<T> op = reduce_op::sum, detail::or_group group = {},
                     call_site where = call_site::current()) {
  return detail::reduce_number<T>(detail::reduction_call<T>("scan", engines::movement::to_all, 1, -1, op, where),
                                  detail::scan_buffer, value, op.in(group, where));
}

/// Returns `op(op(value0, value1), value2)...` of the objects of this rank and of the ranks before it, by any callable.
/// An exception of the callable is thrown on its rank only: the other ranks have all objects by then.
template <serializable T, detail::combines_objects<T> BinaryOp>
[[nodiscard]] T scan(const T& value, BinaryOp op, const process_group& group = world(),
                     call_site where = call_site::current()) {
  return detail::fold_objects<T>(detail::object_call<T>("scan", engines::movement::to_all, -1, where), value,
                                 group.rank() + 1, op, group);
}

/// Folds, element by element, the `in` of this rank and of the ranks before it into `out`, by any callable. The
/// elements may be of any plain type. An exception of the callable is thrown on its rank, and peer_error on the others.
/// A part of the elements may then have been folded already. Otherwise as `scan` with a `reduce_op`, which is faster.
template <buffer In, detail::output_for<In> Out, class BinaryOp>
  requires combines<BinaryOp, detail::value_of<In>>
void scan(const In& in, Out&& out, BinaryOp op, const process_group& group = world(),
          call_site where = call_site::current()) {
  detail::scan_by_fold(detail::buffer_call("scan", engines::movement::to_all, in, -1, where), detail::elements_of(in),
                       detail::writable_elements_of(out), group.rank() + 1,
                       detail::fold_into(detail::view_of(out), nullptr, op), group);
}

/// The same in place, for a view (std::span) or shared_buffer. (An owning container is one object, for a callable on
/// whole containers.)
template <buffer_view R, class BinaryOp>
  requires writable_buffer<R> && combines<BinaryOp, detail::value_of<R>>
void scan(R&& data, BinaryOp op, const process_group& group = world(), call_site where = call_site::current()) {
  scan(data, data, std::move(op), group, where);
}

// Calls that are refused; see call/refused_calls.hpp.

template <class... A, class Why = detail::reason_of<detail::refuse_scan<A...>()>>
detail::refused_result scan(A&&...) = delete;  // Why says the reason and what to do

/// Starts to scan element by element; both buffers must stay until the work is done.
template <detail::lasting_reducible_buffer In, detail::lasting_output_for<In> Out>
work<void> scan_async(In&& in, Out&& out, detail::scan_op_on<In> op = reduce_op::sum, detail::or_group group = {},
                      call_site where = call_site::current()) {
  return detail::start_on_buffers(detail::reduction_call("scan", engines::movement::to_all, in, -1, op, where),
                                  detail::check_scan, detail::scan_buffer, in, out, op.in(group, where));
}

/// Starts to scan element by element, in place; the buffer must stay, untouched, until the work is done.
template <detail::lasting_reducible_buffer R>
  requires writable_buffer<R>
work<void> scan_async(R&& data, detail::scan_op_on<R> op = reduce_op::sum, detail::or_group group = {},
                      call_site where = call_site::current()) {
  return scan_async(data, data, op, group, where);
}

/// Starts to scan one number per rank; the work's value is this rank's result.
template <reducible_element T>
work<T> scan_async(T value, detail::scan_op_for<T> op = reduce_op::sum, detail::or_group group = {},
                   call_site where = call_site::current()) {
  return detail::start_on_number<T>(detail::reduction_call<T>("scan", engines::movement::to_all, 1, -1, op, where),
                                    detail::check_scan, detail::scan_buffer, value, op.in(group, where));
}

/// Starts to scan one object per rank, which is copied; the callable runs on another thread.
template <serializable T, detail::combines_objects<T> BinaryOp>
work<T> scan_async(T value, BinaryOp op, const process_group& group = world(), call_site where = call_site::current()) {
  return detail::start_to_fold_objects<T>(detail::object_call<T>("scan", engines::movement::to_all, -1, where),
                                          std::move(value), group.rank() + 1, std::move(op), group);
}

/// Starts to fold a view's elements, in place; they must stay, untouched, until the work is done.
template <buffer_view R, class BinaryOp>
  requires writable_buffer<R> && lasting_buffer<R> && combines<BinaryOp, detail::value_of<R>>
work<void> scan_async(R&& data, BinaryOp op, const process_group& group = world(),
                      call_site where = call_site::current()) {
  const auto run = [](engines::operation&& call, auto own, BinaryOp& its_op, const process_group& its_group) {
    hfcomm::scan(own, std::move(its_op), its_group, call.where);
  };
  return detail::start_on(detail::buffer_call("scan", engines::movement::to_all, data, -1, where), detail::check_fold,
                          run, group, detail::view_of(data), std::move(op));
}

// Calls that are refused; see call/refused_calls.hpp.

template <class... A, class Why = detail::reason_of<detail::refuse_scan_later<A...>()>>
detail::refused_result scan_async(A&&...) = delete;  // Why says the reason and what to do

}  // namespace hfcomm
