// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
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

/// Returns this rank's object of the root's list, which has one for each rank (usage_error otherwise). The other ranks
/// give an empty list, because their objects would be lost (usage_error otherwise).
template <serializable T>
[[nodiscard]] T scatter(const std::vector<T>& values, int root = 0, const process_group& group = world(),
                        std::source_location where = std::source_location::current()) {
  auto call = detail::object_call<T>("scatter", engines::movement::from_root, root, where);
  detail::running_call running(group, call);
  detail::check_scatter_list(running, values.size());
  running.allow_early_leave();
  std::vector<std::span<const std::byte>> parts(static_cast<std::size_t>(group.size()));
  if (group.rank() == root) {
    parts = detail::encode_parts(running, call, values);
  }
  std::optional<T> mine;
  const auto store = [&](int, T&& received) { mine = std::move(received); };
  detail::object_receiver<T, decltype(store)> received(running, store);
  running.engine().all_to_all_v(call, {.outgoing = parts}, received);
  return std::move(*mine);
}

/// Gives each rank its part of the root's `in`, which has `out.size()` elements for each rank, in rank order
/// (usage_error otherwise); elsewhere `in` is ignored and may be empty. `out` may be the root's own part of `in`.
template <buffer In, writable_buffer Out>
  requires std::same_as<std::ranges::range_value_t<In>, std::ranges::range_value_t<Out>>
void scatter(const In& in, Out&& out, int root = 0, const process_group& group = world(),
             std::source_location where = std::source_location::current()) {
  detail::scatter_buffer(detail::buffer_call<std::ranges::range_value_t<In>>("scatter", engines::movement::from_root,
                                                                             std::ranges::size(out), root, where),
                         detail::elements_of(in), detail::writable_elements_of(out), group);
}

/// Gives each rank its part of the root's `in`: `counts[r]` elements for rank r, one part after another. Each rank's
/// `out` has as many elements as the root has for it (mismatch_error on every rank otherwise; usage_error for the
/// root's own). Only the root's `in` and `counts` are used. `out` may be the root's own part of `in`. (MPI's
/// `MPI_Scatterv`.)
template <buffer In, writable_buffer Out>
  requires std::same_as<std::ranges::range_value_t<In>, std::ranges::range_value_t<Out>>
void scatter(const In& in, Out&& out, std::span<const std::size_t> counts, int root = 0,
             const process_group& group = world(), std::source_location where = std::source_location::current()) {
  detail::scatter_parts(detail::uneven_call<std::ranges::range_value_t<In>>("scatter", engines::movement::from_root,
                                                                            std::ranges::size(out), root, where),
                        detail::elements_of(in), detail::writable_elements_of(out), counts, group);
}

// Calls that are refused; see call/refused_calls.hpp.

template <class T, class... Rest, class Why = detail::why_no_listed_object<T, Rest...>>
  requires detail::refused<Why>
T scatter(const std::vector<T>&, Rest&&...) = delete;  // not serializable: Why says what to do
void scatter(detail::any_device_range, ...) = delete;  // device memory: include <hfcomm/nccl.hpp>, and pass a stream

namespace detail {

/// The overloads of `scatter`, as one function object.
inline constexpr auto call_scatter = [](auto&&... arguments) {
  return hfcomm::scatter(std::forward<decltype(arguments)>(arguments)...);
};

}  // namespace detail

/// Starts to scatter objects, which are copied; the work's value is this rank's object.
template <serializable T>
work<T> scatter_async(std::vector<T> values, int root = 0, const process_group& group = world(),
                      std::source_location where = std::source_location::current()) {
  const auto check = [length = values.size()](detail::checked_call& running) {
    detail::check_scatter_list(running, length);
  };
  return detail::start_checked(detail::object_call<T>("scatter", engines::movement::from_root, root, where), check,
                               detail::call_scatter, group, std::move(values), root);
}

/// Starts to scatter elements; both buffers must stay until the work is done.
template <lasting_buffer In, lasting_buffer Out>
  requires writable_buffer<Out> && std::same_as<std::ranges::range_value_t<In>, std::ranges::range_value_t<Out>>
work<void> scatter_async(In&& in, Out&& out, int root = 0, const process_group& group = world(),
                         std::source_location where = std::source_location::current()) {
  return detail::start_checked(detail::buffer_call<std::ranges::range_value_t<In>>(
                                   "scatter", engines::movement::from_root, std::ranges::size(out), root, where),
                               detail::bind_check(detail::check_scatter, in, out), detail::call_scatter, group,
                               detail::view_of(in), detail::view_of(out), root);
}

/// The same with parts of different lengths; the counts are copied.
template <lasting_buffer In, lasting_buffer Out>
  requires writable_buffer<Out> && std::same_as<std::ranges::range_value_t<In>, std::ranges::range_value_t<Out>>
work<void> scatter_async(In&& in, Out&& out, std::vector<std::size_t> counts, int root = 0,
                         const process_group& group = world(),
                         std::source_location where = std::source_location::current()) {
  return detail::start_checked(detail::uneven_call<std::ranges::range_value_t<In>>(
                                   "scatter", engines::movement::from_root, std::ranges::size(out), root, where),
                               detail::bind_check(detail::check_scatter, in, out, counts), detail::call_scatter, group,
                               detail::view_of(in), detail::view_of(out), std::move(counts), root);
}

// Calls that are refused; see call/refused_calls.hpp.

template <class T, class... Rest, class Why = detail::why_no_listed_object<T, Rest...>>
  requires detail::refused<Why>
work<T> scatter_async(const std::vector<T>&, Rest&&...) = delete;  // not serializable: Why says what to do
template <class In, class... Rest, class Why = detail::why_no_lasting_buffers<In, Rest...>>
  requires detail::refused<Why>
work<void> scatter_async(In&&, Rest&&...) = delete;  // a temporary buffer: see Why
void scatter_async(detail::any_device_range,
                   ...) = delete;  // device memory: include <hfcomm/nccl.hpp>, and pass a stream

}  // namespace hfcomm
