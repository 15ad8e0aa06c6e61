// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <type_traits>
#include <utility>

#include <hfcomm/call/async.hpp>
#include <hfcomm/call/refused_calls.hpp>
#include <hfcomm/collectives/detail/buffer_collectives.hpp>
#include <hfcomm/collectives/detail/fold_elements.hpp>
#include <hfcomm/core/call_site.hpp>

namespace hfcomm {

/// Reduces element by element into the root's `out`; elsewhere `out` is ignored and may be empty. Every rank's `in` is
/// unchanged. `out` may be the root's `in` itself, but must not overlap it otherwise.
template <reducible_buffer In, detail::output_for<In> Out>
void reduce(const In& in, Out&& out, int root, detail::op_on<In> op = reduce_op::sum, detail::or_group group = {},
            call_site where = call_site::current()) {
  detail::reduce_buffer(detail::reduction_call("reduce", engines::movement::to_root, in, root, op, where),
                        detail::elements_of(in), detail::writable_elements_of(out), op.in(group, where));
}

/// Reduces element by element into the root's buffer, in place; the other ranks' buffers stay as they are. (torch
/// leaves those unspecified.)
template <writable_reducible_buffer R>
void reduce(R&& data, int root, detail::op_on<R> op = reduce_op::sum, detail::or_group group = {},
            call_site where = call_site::current()) {
  reduce(data, data, root, op, group, where);
}

/// Returns the reduction of one number per rank on the root; nullopt elsewhere.
template <reducible_element T>
[[nodiscard]] std::optional<T> reduce(const T& value, int root, detail::op_for<T> op = reduce_op::sum,
                                      detail::or_group group = {}, call_site where = call_site::current()) {
  return detail::reduce_number<std::optional<T>>(
      detail::reduction_call<T>("reduce", engines::movement::to_root, 1, root, op, where), detail::reduce_buffer, value,
      op.in(group, where));
}

/// Returns one object per rank, folded in rank order by any callable, on the root; nullopt elsewhere.
template <serializable T, detail::combines_objects<T> BinaryOp>
[[nodiscard]] std::optional<T> reduce(const T& value, int root, BinaryOp op, const process_group& group = world(),
                                      call_site where = call_site::current()) {
  return detail::fold_objects<std::optional<T>>(
      detail::object_call<T>("reduce", engines::movement::to_root, root, where), value, group.size(), op, group);
}

/// Reduces a view (std::span) or shared_buffer of plain elements element by element into the root's, in place, by any
/// callable. The callable runs on the root only, and the other ranks' elements are unchanged. An exception of the
/// callable is thrown on the root, and peer_error on the others. Otherwise as `all_reduce` with a callable.
template <buffer_view R, class BinaryOp>
  requires writable_buffer<R> && combines<BinaryOp, detail::value_of<R>>
void reduce(R&& data, int root, BinaryOp op, const process_group& group = world(),
            call_site where = call_site::current()) {
  detail::fold_elements(detail::buffer_call("reduce", engines::movement::to_root, data, root, where),
                        detail::view_of(data), op, group);
}

// Calls that are refused; see call/refused_calls.hpp.

template <class... A, class Why = detail::reason_of<detail::refuse_rooted_reduction<A...>()>>
detail::refused_result reduce(A&&...) = delete;  // Why says the reason and what to do
void reduce(detail::device_memory_needs_hfcomm_nccl_hpp, ...) = delete;

/// Starts to reduce into the root's `out`; both buffers must stay until the work is done.
template <detail::lasting_reducible_buffer In, detail::lasting_output_for<In> Out>
work<void> reduce_async(In&& in, Out&& out, int root, detail::op_on<In> op = reduce_op::sum,
                        detail::or_group group = {}, call_site where = call_site::current()) {
  return detail::start_on_buffers(detail::reduction_call("reduce", engines::movement::to_root, in, root, op, where),
                                  detail::check_reduce, detail::reduce_buffer, in, out, op.in(group, where));
}

/// Starts to reduce into the root's buffer, in place; it must stay, untouched, until the work is done.
template <detail::lasting_reducible_buffer R>
  requires writable_buffer<R>
work<void> reduce_async(R&& data, int root, detail::op_on<R> op = reduce_op::sum, detail::or_group group = {},
                        call_site where = call_site::current()) {
  return reduce_async(data, data, root, op, group, where);
}

/// Starts to reduce one number per rank; the work's value is the result on the root, nullopt elsewhere.
template <reducible_element T>
work<std::optional<T>> reduce_async(T value, int root, detail::op_for<T> op = reduce_op::sum,
                                    detail::or_group group = {}, call_site where = call_site::current()) {
  return detail::start_on_number<std::optional<T>>(
      detail::reduction_call<T>("reduce", engines::movement::to_root, 1, root, op, where), detail::check_reduce,
      detail::reduce_buffer, value, op.in(group, where));
}

/// Starts to fold one object per rank, which is copied, on the root; the callable runs on another thread.
template <serializable T, detail::combines_objects<T> BinaryOp>
work<std::optional<T>> reduce_async(T value, int root, BinaryOp op, const process_group& group = world(),
                                    call_site where = call_site::current()) {
  return detail::start_to_fold_objects<std::optional<T>>(
      detail::object_call<T>("reduce", engines::movement::to_root, root, where), std::move(value), group.size(),
      std::move(op), group);
}

/// Starts to fold a view's elements on the root, in place; they must stay, untouched, until the work is done.
template <buffer_view R, class BinaryOp>
  requires writable_buffer<R> && lasting_buffer<R> && combines<BinaryOp, detail::value_of<R>>
work<void> reduce_async(R&& data, int root, BinaryOp op, const process_group& group = world(),
                        call_site where = call_site::current()) {
  return detail::start_to_fold(detail::buffer_call("reduce", engines::movement::to_root, data, root, where),
                               detail::view_of(data), std::move(op), group);
}

// Calls that are refused; see call/refused_calls.hpp.

template <class... A, class Why = detail::reason_of<detail::refuse_rooted_reduction_later<A...>()>>
detail::refused_result reduce_async(A&&...) = delete;  // Why says the reason and what to do
void reduce_async(detail::device_memory_needs_hfcomm_nccl_hpp, ...) = delete;

}  // namespace hfcomm
