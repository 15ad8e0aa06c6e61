// SPDX-License-Identifier: MIT
#pragma once

#include <source_location>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <hfcomm/call/async.hpp>
#include <hfcomm/call/refused_calls.hpp>
#include <hfcomm/call/uneven_parts.hpp>
#include <hfcomm/collectives/detail/buffer_collectives.hpp>

namespace hfcomm {

/// Sends the r-th object to rank r, and returns the objects that the ranks sent to this one, in rank order. The list
/// has one object for each rank (usage_error otherwise); the objects may differ in size.
template <serializable T>
[[nodiscard]] std::vector<T> all_to_all(const std::vector<T>& values, const process_group& group = world(),
                                        std::source_location where = std::source_location::current()) {
  auto call = detail::object_call<T>("all_to_all", engines::movement::to_all, -1, where);
  detail::running_call running(group, call);
  detail::check_all_to_all_list(running, values.size());
  const auto parts = detail::encode_parts(running, call, values);
  std::vector<T> result(static_cast<std::size_t>(group.size()));
  const auto store = [&](int source, T&& received) { result[static_cast<std::size_t>(source)] = std::move(received); };
  detail::object_receiver<T, decltype(store)> received(running, store);
  running.engine().all_to_all_v(call, {.outgoing = parts}, received);
  return result;
}

/// Sends the r-th of equal parts of `in` to rank r; `out`, as long as `in`, gets the ranks' parts in rank order. The
/// length is a multiple of the group's size, and the buffers do not overlap (usage_error otherwise). (torch's
/// `all_to_all_single`.)
template <buffer In, writable_buffer Out>
  requires std::same_as<std::ranges::range_value_t<In>, std::ranges::range_value_t<Out>>
void all_to_all(const In& in, Out&& out, const process_group& group = world(),
                std::source_location where = std::source_location::current()) {
  const std::size_t count = std::ranges::size(in) / static_cast<std::size_t>(group.size());
  detail::all_to_all_buffer(
      detail::buffer_call<std::ranges::range_value_t<In>>("all_to_all", engines::movement::to_all, count, -1, where),
      detail::elements_of(in), detail::writable_elements_of(out), group);
}

/// Sends `in_counts[r]` elements of `in` to rank r, one part after another, and receives `out_counts[r]` from it.
/// The sender's count must equal its receiver's; otherwise every rank throws mismatch_error naming the first two that
/// differ. Counts that do not match one rank's own buffers are a usage_error there. The buffers must not overlap.
/// (torch's `all_to_all_single` with split sizes, MPI's `MPI_Alltoallv`.)
template <buffer In, writable_buffer Out>
  requires std::same_as<std::ranges::range_value_t<In>, std::ranges::range_value_t<Out>>
void all_to_all(const In& in, std::span<const std::size_t> in_counts, Out&& out,
                std::span<const std::size_t> out_counts, const process_group& group = world(),
                std::source_location where = std::source_location::current()) {
  detail::all_to_all_parts(detail::uneven_call<std::ranges::range_value_t<In>>("all_to_all", engines::movement::to_all,
                                                                               std::ranges::size(in), -1, where),
                           detail::elements_of(in), in_counts, detail::writable_elements_of(out), out_counts, group);
}

// Calls that are refused; see call/refused_calls.hpp.

template <class T, class... Rest, class Why = detail::why_no_listed_object<T, Rest...>>
  requires detail::refused<Why>
std::vector<T> all_to_all(const std::vector<T>&, Rest&&...) = delete;  // not serializable: Why says what to do
void all_to_all(detail::any_device_range, ...) = delete;  // device memory: include <hfcomm/nccl.hpp>, and pass a stream

namespace detail {

/// The overloads of `all_to_all`, as one function object.
inline constexpr auto call_all_to_all = [](auto&&... arguments) {
  return hfcomm::all_to_all(std::forward<decltype(arguments)>(arguments)...);
};

}  // namespace detail

/// Starts an all-to-all of objects, which are copied; the work's value is the list of objects that the ranks sent to
/// this one.
template <serializable T>
work<std::vector<T>> all_to_all_async(std::vector<T> values, const process_group& group = world(),
                                      std::source_location where = std::source_location::current()) {
  const auto check = [length = values.size()](detail::checked_call& running) {
    detail::check_all_to_all_list(running, length);
  };
  return detail::start_checked(detail::object_call<T>("all_to_all", engines::movement::to_all, -1, where), check,
                               detail::call_all_to_all, group, std::move(values));
}

/// Starts an all-to-all of elements; both buffers must stay until the work is done.
template <lasting_buffer In, lasting_buffer Out>
  requires writable_buffer<Out> && std::same_as<std::ranges::range_value_t<In>, std::ranges::range_value_t<Out>>
work<void> all_to_all_async(In&& in, Out&& out, const process_group& group = world(),
                            std::source_location where = std::source_location::current()) {
  return detail::start_checked(detail::buffer_call<std::ranges::range_value_t<In>>(
                                   "all_to_all", engines::movement::to_all, std::ranges::size(in), -1, where),
                               detail::bind_check(detail::check_all_to_all, in, out), detail::call_all_to_all, group,
                               detail::view_of(in), detail::view_of(out));
}

/// The same with parts of different lengths; the counts are copied.
template <lasting_buffer In, lasting_buffer Out>
  requires writable_buffer<Out> && std::same_as<std::ranges::range_value_t<In>, std::ranges::range_value_t<Out>>
work<void> all_to_all_async(In&& in, std::vector<std::size_t> in_counts, Out&& out, std::vector<std::size_t> out_counts,
                            const process_group& group = world(),
                            std::source_location where = std::source_location::current()) {
  const auto check = [&](detail::checked_call& running) {
    detail::check_all_to_all(running, detail::elements_of(in), in_counts, detail::elements_of(out), out_counts);
  };
  return detail::start_checked(detail::uneven_call<std::ranges::range_value_t<In>>(
                                   "all_to_all", engines::movement::to_all, std::ranges::size(in), -1, where),
                               check, detail::call_all_to_all, group, detail::view_of(in), std::move(in_counts),
                               detail::view_of(out), std::move(out_counts));
}

// Calls that are refused; see call/refused_calls.hpp.

template <class T, class... Rest, class Why = detail::why_no_listed_object<T, Rest...>>
  requires detail::refused<Why>
work<std::vector<T>> all_to_all_async(const std::vector<T>&,
                                      Rest&&...) = delete;  // not serializable: Why says what to do
template <class In, class... Rest, class Why = detail::why_no_lasting_buffers<In, Rest...>>
  requires detail::refused<Why>
work<void> all_to_all_async(In&&, Rest&&...) = delete;  // a temporary buffer: see Why
void all_to_all_async(detail::any_device_range,
                      ...) = delete;  // device memory: include <hfcomm/nccl.hpp>, and pass a stream

}  // namespace hfcomm
