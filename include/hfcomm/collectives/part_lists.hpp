// SPDX-License-Identifier: MIT
#pragma once

#include <concepts>
#include <span>
#include <utility>
#include <vector>

#include <hfcomm/call/async.hpp>
#include <hfcomm/call/refused_calls.hpp>
#include <hfcomm/call/uneven_parts.hpp>
#include <hfcomm/collectives/coalesced.hpp>
#include <hfcomm/collectives/detail/part_list_calls.hpp>
#include <hfcomm/core/call_site.hpp>
#include <hfcomm/core/std_algorithm.hpp>

/// Collectives whose parts are views in a list, one for each rank in rank order, wherever they are in memory. Each is
/// the form with counts, which are the views' lengths: the results, the errors and the signature are the same, so that
/// other ranks may call that form. All are read and written where they are, but for the input of a reduce-scatter.
namespace hfcomm {

/// A list of views of one element type, which are only read.
template <class L>
concept readable_buffer_list = detail::list_of_views<L>;

namespace detail {

/// A list of views of T.
template <class L, class T>
concept list_of = std::same_as<list_element_t<L>, T>;

/// A list that can be copied, as asynchronous operations require.
template <class L>
concept lasting_list = std::ranges::view<std::ranges::range_value_t<L>>;

template <class L>
std::vector<const_elements> parts_in(const L& list) {
  std::vector<const_elements> parts;
  for (const auto& view : list) {
    parts.push_back(elements_of(view));
  }
  return parts;
}

template <class L>
std::vector<elements> writable_parts_in(L& list) {
  std::vector<elements> parts;
  for (auto&& view : list) {
    parts.push_back(writable_elements_of(view));
  }
  return parts;
}

}  // namespace detail

/// Gathers rank r's elements in the r-th view of `out`, on every rank. The views' lengths are equal on all ranks
/// (mismatch_error otherwise), and this rank's is that of `in` (usage_error otherwise). `in` may be this rank's own
/// view. Views that overlap are a usage_error. (torch's `all_gather` of a list.)
template <buffer In, buffer_list Out>
  requires detail::list_of<Out, detail::value_of<In>>
void all_gather(const In& in, Out&& out, const process_group& group = world(), call_site where = call_site::current()) {
  detail::all_gather_list(detail::uneven_call("all_gather", engines::movement::to_all, in, -1, where),
                          detail::elements_of(in), detail::writable_parts_in(out), group);
}

/// Gathers rank r's elements in the r-th view of the root's `out`. Where a rank contributes another number, every rank
/// throws mismatch_error; usage_error for the root's own. Elsewhere `out` is ignored and may be empty. The root's `in`
/// may be its own view. Views that overlap are a usage_error. (torch's `gather`.)
template <buffer In, buffer_list Out>
  requires detail::list_of<Out, detail::value_of<In>>
void gather(const In& in, Out&& out, detail::optional_root root = 0, detail::or_group group = {},
            call_site where = call_site::current()) {
  detail::gather_list(detail::uneven_call("gather", engines::movement::to_root, in, root, where),
                      detail::elements_of(in), detail::writable_parts_in(out), root.in(group, where));
}

/// Gives rank r the elements of the r-th view of the root's `in`, in `out`, which has as many (mismatch_error on every
/// rank otherwise; usage_error for the root's own). Elsewhere `in` is ignored and may be empty. `out` may be the root's
/// own view. (torch's `scatter`.)
template <readable_buffer_list In, writable_buffer Out>
  requires detail::list_of<In, detail::value_of<Out>>
void scatter(const In& in, Out&& out, detail::optional_root root = 0, detail::or_group group = {},
             call_site where = call_site::current()) {
  detail::scatter_list(detail::uneven_call("scatter", engines::movement::from_root, out, root, where),
                       detail::parts_in(in), detail::writable_elements_of(out), root.in(group, where));
}

/// Sends the elements of the r-th view of `in` to rank r, and receives in the r-th view of `out` what rank r has sent.
/// The sender's length must equal its receiver's; otherwise every rank throws mismatch_error naming the first two that
/// differ. No view of `out` may overlap another one, or one of `in` (usage_error). (torch's `all_to_all`.)
template <readable_buffer_list In, buffer_list Out>
  requires detail::list_of<Out, detail::list_element_t<In>>
void all_to_all(const In& in, Out&& out, const process_group& group = world(), call_site where = call_site::current()) {
  detail::all_to_all_list(
      detail::uneven_call<detail::list_element_t<In>>("all_to_all", engines::movement::to_all, 0, -1, where),
      detail::parts_in(in), detail::writable_parts_in(out), group);
}

/// Reduces element by element over the ranks, and leaves rank r the result of the r-th views, in `out`. The views'
/// lengths are equal on all ranks (mismatch_error otherwise), and this rank's is that of `out` (usage_error otherwise).
/// `out` may be this rank's own view. Views that do not follow each other in memory are copied first. The bits are
/// those that `all_reduce` gives. (torch's `reduce_scatter`.)
template <readable_buffer_list In, writable_reducible_buffer Out>
  requires detail::list_of<In, detail::value_of<Out>>
void reduce_scatter(const In& in, Out&& out, detail::op_on<Out> op = reduce_op::sum, detail::or_group group = {},
                    call_site where = call_site::current()) {
  detail::reduce_scatter_list(
      detail::reduction_call<detail::value_of<Out>>("reduce_scatter", engines::movement::to_all, 0, -1, op, where),
      detail::parts_in(in), detail::writable_elements_of(out), op.in(group, where));
}

// The same, started: all elements must stay until the work is done, and the lists are copied.

template <lasting_buffer In, lasting_buffer_list Out>
  requires detail::list_of<Out, detail::value_of<In>>
work<void> all_gather_async(In&& in, const Out& out, const process_group& group = world(),
                            call_site where = call_site::current()) {
  return detail::start_on(detail::uneven_call("all_gather", engines::movement::to_all, in, -1, where),
                          detail::check_all_gather_list, detail::all_gather_list, group, detail::elements_of(in),
                          detail::writable_parts_in(out));
}

template <lasting_buffer In, lasting_buffer_list Out>
  requires detail::list_of<Out, detail::value_of<In>>
work<void> gather_async(In&& in, const Out& out, detail::optional_root root = 0, detail::or_group group = {},
                        call_site where = call_site::current()) {
  return detail::start_on(detail::uneven_call("gather", engines::movement::to_root, in, root, where),
                          detail::check_gather_list, detail::gather_list, root.in(group, where),
                          detail::elements_of(in), detail::writable_parts_in(out));
}

template <readable_buffer_list In, lasting_buffer Out>
  requires detail::lasting_list<In> && writable_buffer<Out> && detail::list_of<In, detail::value_of<Out>>
work<void> scatter_async(const In& in, Out&& out, detail::optional_root root = 0, detail::or_group group = {},
                         call_site where = call_site::current()) {
  return detail::start_on(detail::uneven_call("scatter", engines::movement::from_root, out, root, where),
                          detail::check_scatter_list, detail::scatter_list, root.in(group, where), detail::parts_in(in),
                          detail::writable_elements_of(out));
}

template <readable_buffer_list In, lasting_buffer_list Out>
  requires detail::lasting_list<In> && detail::list_of<Out, detail::list_element_t<In>>
work<void> all_to_all_async(const In& in, const Out& out, const process_group& group = world(),
                            call_site where = call_site::current()) {
  return detail::start_on(
      detail::uneven_call<detail::list_element_t<In>>("all_to_all", engines::movement::to_all, 0, -1, where),
      detail::check_all_to_all_list, detail::all_to_all_list, group, detail::parts_in(in),
      detail::writable_parts_in(out));
}

template <readable_buffer_list In, lasting_buffer Out>
  requires detail::lasting_list<In> && writable_reducible_buffer<Out> && detail::list_of<In, detail::value_of<Out>>
work<void> reduce_scatter_async(const In& in, Out&& out, detail::op_on<Out> op = reduce_op::sum,
                                detail::or_group group = {}, call_site where = call_site::current()) {
  return detail::start_on(
      detail::reduction_call<detail::value_of<Out>>("reduce_scatter", engines::movement::to_all, 0, -1, op, where),
      detail::check_reduce_scatter_list, detail::reduce_scatter_list, op.in(group, where), detail::parts_in(in),
      detail::writable_elements_of(out));
}

}  // namespace hfcomm
