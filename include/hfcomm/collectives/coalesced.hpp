// SPDX-License-Identifier: MIT
#pragma once

#include <concepts>
#include <cstddef>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <hfcomm/call/async.hpp>
#include <hfcomm/call/refused_calls.hpp>
#include <hfcomm/call/typed_calls.hpp>
#include <hfcomm/collectives/detail/coalesced_call.hpp>
#include <hfcomm/core/call_site.hpp>

/// Collectives on many spans in one call, which need few operations instead of one for each span.
namespace hfcomm {

/// A list of writable views of one element type, such as std::vector<std::span<float>>, or of shared buffers. (A list
/// of vectors is an object, which may change its size.)
template <class L>
concept buffer_list = detail::list_of_buffers<L>;

/// A list of views that can be copied, as asynchronous operations require.
template <class L>
concept lasting_buffer_list = buffer_list<L> && std::ranges::view<std::ranges::range_value_t<L>>;

/// A list whose elements reductions can add up.
template <class L>
concept reducible_buffer_list = buffer_list<L> && reducible_buffer<std::ranges::range_reference_t<L>>;

struct coalesce_options {
  /// Spans are packed together up to this many bytes; one that fills a chunk alone is not copied and may be larger.
  std::size_t chunk_bytes = std::size_t{25} << 20;
};

namespace detail {

template <class L>
using list_element_t = element_in<std::ranges::range_value_t<L>>;

template <class L>
std::vector<coalesced_piece> pieces_of(L& list, reduction_kernel kernel = nullptr) {
  std::vector<coalesced_piece> pieces;
  pieces.reserve(static_cast<std::size_t>(std::ranges::distance(list)));
  for (auto&& view : list) {
    pieces.push_back({element_type_of<list_element_t<L>>, writable_bytes_of(view), kernel});
  }
  return pieces;
}

template <class T>
auto describe_pieces(const std::vector<coalesced_piece>& pieces) {
  return [&pieces] { return describe_spans(pieces, sizeof(T), type_name<T>()); };
}

template <class L>
operation broadcast_list_call(int root, call_site where) {
  return buffer_call<list_element_t<L>>("coalesced broadcast", movement::from_root, 0, root, where);
}
template <class L>
operation all_reduce_list_call(reduce_op op, call_site where) {
  return reduction_call<list_element_t<L>>("coalesced all_reduce", movement::to_all, 0, -1, op, where);
}

/// Starts one of the collectives on pieces of T.
template <class T, class Check, class Run>
work<void> start_on_pieces(const operation& call, const Check& check, Run run, std::vector<coalesced_piece> pieces,
                           const coalesce_options& options, const process_group& group) {
  const auto run_on = [run, options](const operation& begun, const std::vector<coalesced_piece>& own,
                                     const process_group& its_group) {
    run(begun, own, options.chunk_bytes, its_group, describe_pieces<T>(own));
  };
  return start_on(call, check, run_on, group, std::move(pieces));
}

}  // namespace detail

/// Gives every rank the root's elements of every span, in place. The list may be empty, and so may spans.
///
/// All ranks give equally many spans, equally long, and the same `chunk_bytes`; otherwise every rank throws
/// mismatch_error naming the first span that differs and both ranks, and no data moves. The check is free where they
/// agree. Spans that overlap are a usage_error. Extra memory: one chunk. Otherwise as `broadcast` of one span. (torch's
/// `_broadcast_coalesced`.)
template <buffer_list L>
void broadcast(L&& list, int root, const coalesce_options& options, const process_group& group = world(),
               call_site where = call_site::current()) {
  const auto pieces = detail::pieces_of(list);
  detail::broadcast_pieces(detail::broadcast_list_call<L>(root, where), pieces, options.chunk_bytes, group,
                           detail::describe_pieces<detail::list_element_t<L>>(pieces));
}

/// Calls the overload above with chunks of 25 MiB.
template <buffer_list L>
void broadcast(L&& list, detail::optional_root root = 0, detail::or_group group = {},
               call_site where = call_site::current()) {
  broadcast(list, root, coalesce_options{}, root.in(group, where), where);
}

/// Reduces every span element by element, in place, on every rank: the same bits as an `all_reduce` of each span by
/// itself. The list may be empty, and so may spans.
///
/// All ranks give equally many spans, equally long, and the same `chunk_bytes`; otherwise every rank throws
/// mismatch_error naming the first span that differs and both ranks, and no data moves. The check is free where they
/// agree. Spans that overlap are a usage_error. Extra memory: one chunk. Otherwise as `all_reduce` of one span.
template <reducible_buffer_list L>
void all_reduce(L&& list, detail::op_for<detail::list_element_t<L>> op, const coalesce_options& options,
                detail::or_group group = {}, call_site where = call_site::current()) {
  const auto call = detail::all_reduce_list_call<L>(op, where);
  const auto pieces = detail::pieces_of(list, call.kernel);
  detail::all_reduce_pieces(call, pieces, options.chunk_bytes, op.in(group, where),
                            detail::describe_pieces<detail::list_element_t<L>>(pieces));
}

/// Calls the overload above with chunks of 25 MiB.
template <reducible_buffer_list L>
void all_reduce(L&& list, detail::op_for<detail::list_element_t<L>> op = reduce_op::sum, detail::or_group group = {},
                call_site where = call_site::current()) {
  all_reduce(list, op, coalesce_options{}, group, where);
}

/// Starts to broadcast every span; their elements must stay, untouched, until the work is done. The list is copied.
template <lasting_buffer_list L>
work<void> broadcast_async(const L& list, int root, const coalesce_options& options,
                           const process_group& group = world(), call_site where = call_site::current()) {
  return detail::start_on_pieces<detail::list_element_t<L>>(detail::broadcast_list_call<L>(root, where),
                                                            detail::check_broadcast_pieces, detail::broadcast_pieces,
                                                            detail::pieces_of(list), options, group);
}

/// Calls the overload above with chunks of 25 MiB.
template <lasting_buffer_list L>
work<void> broadcast_async(const L& list, detail::optional_root root = 0, detail::or_group group = {},
                           call_site where = call_site::current()) {
  return broadcast_async(list, root, coalesce_options{}, root.in(group, where), where);
}

/// Starts to reduce every span; their elements must stay, untouched, until the work is done. The list is copied.
template <reducible_buffer_list L>
  requires lasting_buffer_list<L>
work<void> all_reduce_async(const L& list, detail::op_for<detail::list_element_t<L>> op,
                            const coalesce_options& options, detail::or_group group = {},
                            call_site where = call_site::current()) {
  const auto call = detail::all_reduce_list_call<L>(op, where);
  return detail::start_on_pieces<detail::list_element_t<L>>(
      call, detail::check_all_reduce_pieces, detail::all_reduce_pieces, detail::pieces_of(list, call.kernel), options,
      op.in(group, where));
}

/// Calls the overload above with chunks of 25 MiB.
template <reducible_buffer_list L>
  requires lasting_buffer_list<L>
work<void> all_reduce_async(const L& list, detail::op_for<detail::list_element_t<L>> op = reduce_op::sum,
                            detail::or_group group = {}, call_site where = call_site::current()) {
  return all_reduce_async(list, op, coalesce_options{}, group, where);
}

// Calls that are refused; see call/refused_calls.hpp.

template <buffer_list L, class... Rest>
  requires(!lasting_buffer_list<L>)
work<void> broadcast_async(const L&, Rest&&...) = delete;  // the list is copied, so it must be one of std::spans
template <buffer_list L, class... Rest>
  requires(!lasting_buffer_list<L>)
work<void> all_reduce_async(const L&, Rest&&...) = delete;  // the list is copied, so it must be one of std::spans

}  // namespace hfcomm
