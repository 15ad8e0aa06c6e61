// SPDX-License-Identifier: MIT
#pragma once

#include <source_location>
#include <string>
#include <utility>
#include <vector>

#include <hfcomm/call/async.hpp>
#include <hfcomm/call/uneven.hpp>

namespace hfcomm {

/// Sends the r-th object to rank r; returns what the ranks sent here, in rank order. The list has one object for each
/// rank (usage_error otherwise); the objects may differ in size.
template <serializable T>
[[nodiscard]] std::vector<T> all_to_all(const std::vector<T>& values, const process_group& group = world(),
                                        std::source_location where = std::source_location::current()) {
  auto call = detail::object_call<T>("all_to_all", movement::to_all, -1, where);
  detail::running_call running(group, call);
  const auto ranks = static_cast<std::size_t>(group.size());
  running.require(values.size() == ranks, [&] {
    return "the list has " + std::to_string(values.size()) + " objects for " + std::to_string(ranks) + " ranks";
  });
  const auto parts = detail::encode_parts(running, call, values);
  std::vector<T> result(ranks);
  const auto store = [&](int source, T&& received) { result[static_cast<std::size_t>(source)] = std::move(received); };
  detail::object_receiver<T, decltype(store)> received(running, store);
  running.engine().deal(call, {.outgoing = parts}, received);
  return result;
}

/// Sends the r-th of equal parts of `in` to rank r; `out`, as long as `in`, gets the ranks' parts in rank order. The
/// length is a multiple of the group's size, and the buffers do not overlap (usage_error otherwise). (torch's
/// `all_to_all_single`.)
template <buffer In, writable_buffer Out>
  requires std::same_as<std::ranges::range_value_t<In>, std::ranges::range_value_t<Out>>
void all_to_all(const In& in, Out&& out, const process_group& group = world(),
                std::source_location where = std::source_location::current()) {
  using T = std::ranges::range_value_t<In>;
  const auto ranks = static_cast<std::size_t>(group.size());
  const std::size_t count = std::ranges::size(in) / ranks;
  auto call = detail::buffer_call<T>("all_to_all", movement::to_all, count, -1, where);
  detail::running_call running(group, call);
  detail::require_memory(running, in);
  detail::require_memory(running, out);
  running.require(std::ranges::size(in) % ranks == 0, [&] {
    return "the input's " + std::to_string(std::ranges::size(in)) + " elements cannot be divided by " +
           std::to_string(ranks) + " ranks";
  });
  running.require(std::ranges::size(out) == std::ranges::size(in), [&] {
    return "the output has " + std::to_string(std::ranges::size(out)) + " elements, the input " +
           std::to_string(std::ranges::size(in));
  });
  detail::require_apart(running, detail::bytes_of(in), detail::writable_bytes_of(out));
  detail::table_receiver received(detail::writable_bytes_of(out), group.rank());
  running.engine().deal(call, {.equal = detail::bytes_of(in)}, received);
}

/// Sends `in_counts[r]` elements of `in` to rank r, one part behind the other, and receives `out_counts[r]` from it.
/// What a rank sends must be what its receiver expects: otherwise every rank throws mismatch_error naming the first two
/// that differ. What does not fit on one rank alone is a usage_error there. The buffers must not overlap. (torch's
/// `all_to_all_single` with split sizes, MPI's `MPI_Alltoallv`.)
template <buffer In, writable_buffer Out>
  requires std::same_as<std::ranges::range_value_t<In>, std::ranges::range_value_t<Out>>
void all_to_all(const In& in, std::span<const std::size_t> in_counts, Out&& out,
                std::span<const std::size_t> out_counts, const process_group& group = world(),
                std::source_location where = std::source_location::current()) {
  using T = std::ranges::range_value_t<In>;
  auto call = detail::uneven_call<T>("all_to_all", movement::to_all, std::ranges::size(in), -1, where);
  detail::running_call running(group, call);
  detail::require_memory(running, in);
  detail::require_memory(running, out);
  detail::require_length(running, std::ranges::size(in),
                         detail::require_counts(running, in_counts, group.size(), "the input"), "the input");
  detail::require_length(running, std::ranges::size(out),
                         detail::require_counts(running, out_counts, group.size(), "the output"), "the output");
  const auto rank = static_cast<std::size_t>(group.rank());
  detail::require_own(running, in_counts[rank], out_counts[rank]);
  detail::require_apart(running, detail::bytes_of(in), detail::writable_bytes_of(out));
  const auto parts = detail::parts_of(detail::bytes_of(in), in_counts, sizeof(T));
  const auto places = detail::parts_of(detail::writable_bytes_of(out), out_counts, sizeof(T));
  const auto expected = detail::in_bytes(out_counts, sizeof(T));
  detail::parts_receiver received(places, group.rank());
  running.engine().deal(call, {.outgoing = parts, .expected = expected}, received);
}

/// Starts an all-to-all of objects, which are copied; the work's value is what the ranks sent here.
template <serializable T>
work<std::vector<T>> all_to_all_async(std::vector<T> values, const process_group& group = world(),
                                      std::source_location where = std::source_location::current()) {
  return detail::start("all_to_all", group, where,
                       [values = std::move(values), group, where] { return all_to_all(values, group, where); });
}

/// Starts an all-to-all of elements; both buffers must stay until the work is done.
template <lasting_buffer In, lasting_buffer Out>
  requires writable_buffer<Out> && std::same_as<std::ranges::range_value_t<In>, std::ranges::range_value_t<Out>>
work<void> all_to_all_async(In&& in, Out&& out, const process_group& group = world(),
                            std::source_location where = std::source_location::current()) {
  return detail::start(
      "all_to_all", group, where,
      [in = detail::view_of(in), out = detail::view_of(out), group, where] { all_to_all(in, out, group, where); });
}

template <lasting_buffer In, lasting_buffer Out>
  requires writable_buffer<Out> && std::same_as<std::ranges::range_value_t<In>, std::ranges::range_value_t<Out>>
work<void> all_to_all_async(In&& in, std::vector<std::size_t> in_counts, Out&& out, std::vector<std::size_t> out_counts,
                            const process_group& group = world(),
                            std::source_location where = std::source_location::current()) {
  return detail::start(
      "all_to_all", group, where,
      [in = detail::view_of(in), out = detail::view_of(out), in_counts = std::move(in_counts),
       out_counts = std::move(out_counts), group, where] { all_to_all(in, in_counts, out, out_counts, group, where); });
}

}  // namespace hfcomm
