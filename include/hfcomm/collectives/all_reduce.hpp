// SPDX-License-Identifier: MIT
#pragma once

#include <type_traits>
#include <utility>

#include <hfcomm/call/async.hpp>
#include <hfcomm/call/refused_calls.hpp>
#include <hfcomm/collectives/detail/buffer_collectives.hpp>
#include <hfcomm/collectives/detail/fold_elements.hpp>
#include <hfcomm/core/call_site.hpp>

namespace hfcomm {

/// Reduces element by element into every rank's `out`, which is as long as `in` (usage_error otherwise). `out` may be
/// `in` itself, but must not overlap it otherwise. All ranks get the same bits, from run to run too.
template <reducible_buffer In, detail::output_for<In> Out>
void all_reduce(const In& in, Out&& out, detail::op_on<In> op = reduce_op::sum, detail::or_group group = {},
                call_site where = call_site::current()) {
  detail::all_reduce_buffer(detail::reduction_call("all_reduce", engines::movement::to_all, in, -1, op, where),
                            detail::elements_of(in), detail::writable_elements_of(out), op.in(group, where));
}

/// Reduces element by element, in place, on every rank.
template <writable_reducible_buffer R>
void all_reduce(R&& data, detail::op_on<R> op = reduce_op::sum, detail::or_group group = {},
                call_site where = call_site::current()) {
  all_reduce(data, data, op, group, where);
}

/// Returns the reduction of one number per rank, on every rank.
template <reducible_element T>
[[nodiscard]] T all_reduce(const T& value, detail::op_for<T> op = reduce_op::sum, detail::or_group group = {},
                           call_site where = call_site::current()) {
  return detail::reduce_number<T>(detail::reduction_call<T>("all_reduce", engines::movement::to_all, 1, -1, op, where),
                                  detail::all_reduce_buffer, value, op.in(group, where));
}

/// Returns one object per rank, folded in rank order by any callable, on every rank: `op(op(value0, value1),
/// value2)...`. The callable runs on every rank on equal arguments, so a deterministic one gives every rank the same
/// result.
template <serializable T, detail::combines_objects<T> BinaryOp>
[[nodiscard]] T all_reduce(const T& value, BinaryOp op, const process_group& group = world(),
                           call_site where = call_site::current()) {
  return detail::fold_objects<T>(detail::object_call<T>("all_reduce", engines::movement::to_all, -1, where), value,
                                 group.size(), op, group);
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
  requires writable_buffer<R> && combines<BinaryOp, detail::value_of<R>>
void all_reduce(R&& data, BinaryOp op, const process_group& group = world(), call_site where = call_site::current()) {
  detail::fold_elements(detail::buffer_call("all_reduce", engines::movement::to_all, data, -1, where),
                        detail::view_of(data), op, group);
}

// Calls that are refused; see call/refused_calls.hpp.

template <class... A, class Why = detail::reason_of<detail::refuse_reduction<A...>()>>
detail::refused_result all_reduce(A&&...) = delete;  // Why says the reason and what to do
void all_reduce(detail::device_memory_needs_hfcomm_nccl_hpp, ...) = delete;

/// Starts to reduce element by element; both buffers must stay until the work is done.
template <detail::lasting_reducible_buffer In, detail::lasting_output_for<In> Out>
work<void> all_reduce_async(In&& in, Out&& out, detail::op_on<In> op = reduce_op::sum, detail::or_group group = {},
                            call_site where = call_site::current()) {
  return detail::start_on_buffers(detail::reduction_call("all_reduce", engines::movement::to_all, in, -1, op, where),
                                  detail::check_all_reduce, detail::all_reduce_buffer, in, out, op.in(group, where));
}

/// Starts to reduce element by element, in place; the buffer must stay, untouched, until the work is done.
template <detail::lasting_reducible_buffer R>
  requires writable_buffer<R>
work<void> all_reduce_async(R&& data, detail::op_on<R> op = reduce_op::sum, detail::or_group group = {},
                            call_site where = call_site::current()) {
  return all_reduce_async(data, data, op, group, where);
}

/// Starts to reduce one number per rank; the work's value is the result.
template <reducible_element T>
work<T> all_reduce_async(T value, detail::op_for<T> op = reduce_op::sum, detail::or_group group = {},
                         call_site where = call_site::current()) {
  return detail::start_on_number<T>(
      detail::reduction_call<T>("all_reduce", engines::movement::to_all, 1, -1, op, where), detail::check_all_reduce,
      detail::all_reduce_buffer, value, op.in(group, where));
}

/// Starts to fold one object per rank, which is copied; the callable runs on another thread.
template <serializable T, detail::combines_objects<T> BinaryOp>
work<T> all_reduce_async(T value, BinaryOp op, const process_group& group = world(),
                         call_site where = call_site::current()) {
  return detail::start_to_fold_objects<T>(detail::object_call<T>("all_reduce", engines::movement::to_all, -1, where),
                                          std::move(value), group.size(), std::move(op), group);
}

/// Starts to fold a view's elements, in place; they must stay, untouched, until the work is done.
template <buffer_view R, class BinaryOp>
  requires writable_buffer<R> && lasting_buffer<R> && combines<BinaryOp, detail::value_of<R>>
work<void> all_reduce_async(R&& data, BinaryOp op, const process_group& group = world(),
                            call_site where = call_site::current()) {
  return detail::start_to_fold(detail::buffer_call("all_reduce", engines::movement::to_all, data, -1, where),
                               detail::view_of(data), std::move(op), group);
}

// Calls that are refused; see call/refused_calls.hpp.

template <class... A, class Why = detail::reason_of<detail::refuse_reduction_later<A...>()>>
detail::refused_result all_reduce_async(A&&...) = delete;  // Why says the reason and what to do
void all_reduce_async(detail::device_memory_needs_hfcomm_nccl_hpp, ...) = delete;

}  // namespace hfcomm
