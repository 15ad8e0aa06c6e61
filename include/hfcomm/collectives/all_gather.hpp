// SPDX-License-Identifier: MIT
#pragma once

#include <source_location>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include <hfcomm/call/async.hpp>
#include <hfcomm/call/refused_calls.hpp>
#include <hfcomm/call/uneven_parts.hpp>
#include <hfcomm/collectives/detail/buffer_collectives.hpp>

namespace hfcomm {

/// Returns every rank's object, in rank order, on every rank. The objects may differ in size. (detectron2's
/// `all_gather`, torch's `all_gather_object`; nothing is padded, and no GPU is used.)
template <serializable T>
[[nodiscard]] std::vector<T> all_gather(const T& value, const process_group& group = world(),
                                        std::source_location where = std::source_location::current()) {
  return detail::collect_objects("all_gather", engines::movement::to_all, value, -1, group, where);
}

/// Gathers every rank's elements, in rank order, in `out` on every rank. `out` holds `in.size() * group.size()`
/// elements (usage_error otherwise). `in` may be this rank's own part of `out`.
template <buffer In, writable_buffer Out>
  requires std::same_as<std::ranges::range_value_t<In>, std::ranges::range_value_t<Out>>
void all_gather(const In& in, Out&& out, const process_group& group = world(),
                std::source_location where = std::source_location::current()) {
  detail::all_gather_buffer(detail::buffer_call<std::ranges::range_value_t<In>>("all_gather", engines::movement::to_all,
                                                                                std::ranges::size(in), -1, where),
                            detail::elements_of(in), detail::writable_elements_of(out), group);
}

/// Gathers every rank's elements, one part after another, in `out` on every rank. Rank r contributes `counts[r]`
/// elements. The counts are equal on all ranks (mismatch_error otherwise). This rank's count is the length of `in`, and
/// their sum is the length of `out` (usage_error otherwise). Where no rank knows the others' counts, `all_gather_v`
/// transfers them, too. (MPI's `MPI_Allgatherv`.)
template <buffer In, writable_buffer Out>
  requires std::same_as<std::ranges::range_value_t<In>, std::ranges::range_value_t<Out>>
void all_gather(const In& in, Out&& out, std::span<const std::size_t> counts, const process_group& group = world(),
                std::source_location where = std::source_location::current()) {
  detail::all_gather_parts(detail::uneven_call<std::ranges::range_value_t<In>>("all_gather", engines::movement::to_all,
                                                                               std::ranges::size(in), -1, where),
                           detail::elements_of(in), detail::writable_elements_of(out), counts, group);
}

// Calls that are refused; see call/refused_calls.hpp.

template <class T, class... Rest, class Why = detail::why_no_object_or_buffers<T, Rest...>>
  requires detail::refused<Why>
std::vector<std::decay_t<T>> all_gather(T&&, Rest&&...) = delete;  // not serializable: Why says what to do
void all_gather(detail::any_device_range, ...) = delete;  // device memory: include <hfcomm/nccl.hpp>, and pass a stream

namespace detail {

/// The overloads of `all_gather`, as one function object.
inline constexpr auto call_all_gather = [](auto&&... arguments) {
  return hfcomm::all_gather(std::forward<decltype(arguments)>(arguments)...);
};

}  // namespace detail

/// Starts to gather objects, of which this rank's is copied; the work's value is every rank's object.
template <serializable T>
work<std::vector<T>> all_gather_async(T value, const process_group& group = world(),
                                      std::source_location where = std::source_location::current()) {
  return detail::start("all_gather", detail::call_all_gather, group, where, std::move(value));
}

/// Starts to gather elements; both buffers must stay until the work is done.
template <lasting_buffer In, lasting_buffer Out>
  requires writable_buffer<Out> && std::same_as<std::ranges::range_value_t<In>, std::ranges::range_value_t<Out>>
work<void> all_gather_async(In&& in, Out&& out, const process_group& group = world(),
                            std::source_location where = std::source_location::current()) {
  return detail::start_checked(detail::buffer_call<std::ranges::range_value_t<In>>(
                                   "all_gather", engines::movement::to_all, std::ranges::size(in), -1, where),
                               detail::bind_check(detail::check_all_gather, in, out), detail::call_all_gather, group,
                               detail::view_of(in), detail::view_of(out));
}

/// The same with parts of different lengths; the counts are copied.
template <lasting_buffer In, lasting_buffer Out>
  requires writable_buffer<Out> && std::same_as<std::ranges::range_value_t<In>, std::ranges::range_value_t<Out>>
work<void> all_gather_async(In&& in, Out&& out, std::vector<std::size_t> counts, const process_group& group = world(),
                            std::source_location where = std::source_location::current()) {
  return detail::start_checked(detail::uneven_call<std::ranges::range_value_t<In>>(
                                   "all_gather", engines::movement::to_all, std::ranges::size(in), -1, where),
                               detail::bind_check(detail::check_all_gather, in, out, counts), detail::call_all_gather,
                               group, detail::view_of(in), detail::view_of(out), std::move(counts));
}

// Calls that are refused; see call/refused_calls.hpp.

template <class T, class... Rest, class Why = detail::why_no_object_or_lasting_buffers<T, Rest...>>
  requires detail::refused<Why>
work<std::vector<std::decay_t<T>>> all_gather_async(T&&,
                                                    Rest&&...) = delete;  // not serializable, or a temporary: see Why
void all_gather_async(detail::any_device_range,
                      ...) = delete;  // device memory: include <hfcomm/nccl.hpp>, and pass a stream

}  // namespace hfcomm
