// SPDX-License-Identifier: MIT
#pragma once

#include <source_location>
#include <string>
#include <utility>
#include <vector>

#include <hfcomm/call/async.hpp>
#include <hfcomm/call/uneven.hpp>

namespace hfcomm {

/// Every rank's object, in rank order, on the root; an empty vector elsewhere. (detectron2's and MMEngine's `gather`.)
template <serializable T>
[[nodiscard]] std::vector<T> gather(const T& value, int root = 0, const process_group& group = world(),
                                    std::source_location where = std::source_location::current()) {
  return detail::collect_objects("gather", movement::to_root, value, root, group, where);
}

/// Every rank's elements, in rank order, in the root's `out`, which holds `in.size() * group.size()` elements;
/// elsewhere `out` is not looked at and may be empty.
template <buffer In, writable_buffer Out>
  requires std::same_as<std::ranges::range_value_t<In>, std::ranges::range_value_t<Out>>
void gather(const In& in, Out&& out, int root = 0, const process_group& group = world(),
            std::source_location where = std::source_location::current()) {
  auto call = detail::buffer_call<std::ranges::range_value_t<In>>("gather", movement::to_root, std::ranges::size(in),
                                                                  root, where);
  detail::running_call running(group, call);
  running.require_root();
  detail::require_memory(running, in);
  running.require(
      group.rank() != root || detail::is_one_for_each(std::ranges::size(out), std::ranges::size(in), group.size()),
      [&] {
        return "the root's output has " + std::to_string(std::ranges::size(out)) + " elements, but " +
               std::to_string(group.size()) + " ranks contribute " + std::to_string(std::ranges::size(in)) + " each";
      });
  const auto to = detail::writable_bytes_of(out);
  if (group.rank() == root) {
    detail::require_memory(running, out);
    const std::size_t mine = detail::bytes_of(in).size();
    detail::require_apart(running, to, detail::bytes_of(in), to.subspan(mine * static_cast<std::size_t>(root), mine));
  }
  detail::table_receiver table(to, group.rank());
  running.engine().exchange(call, detail::bytes_of(in), table);
}

/// Every rank's elements, one part behind the other, in the root's `out`, where the root expects `counts[r]` elements
/// from rank r (mismatch_error on every rank where one contributes another number, usage_error for the root's own);
/// `out` and `counts` are looked at on the root only. The root's `in` may be its own part of `out`. Where the root does
/// not know the counts, `gather` of a vector as an object tells them. (MPI's `MPI_Gatherv`.)
template <buffer In, writable_buffer Out>
  requires std::same_as<std::ranges::range_value_t<In>, std::ranges::range_value_t<Out>>
void gather(const In& in, Out&& out, std::span<const std::size_t> counts, int root = 0,
            const process_group& group = world(), std::source_location where = std::source_location::current()) {
  using T = std::ranges::range_value_t<In>;
  auto call = detail::uneven_call<T>("gather", movement::to_root, std::ranges::size(in), root, where);
  detail::running_call running(group, call);
  running.require_root();
  detail::require_memory(running, in);
  const auto ranks = static_cast<std::size_t>(group.size());
  std::vector<std::uint64_t> expected(ranks);
  std::vector<std::span<std::byte>> places(ranks);
  if (group.rank() == root) {
    detail::require_memory(running, out);
    detail::require_length(running, std::ranges::size(out),
                           detail::require_counts(running, counts, group.size(), "the root's output"),
                           "the root's output");
    detail::require_own(running, std::ranges::size(in), counts[static_cast<std::size_t>(root)]);
    expected = detail::in_bytes(counts, sizeof(T));
    places = detail::parts_of(detail::writable_bytes_of(out), counts, sizeof(T));
    detail::require_apart(running, detail::writable_bytes_of(out), detail::bytes_of(in),
                          places[static_cast<std::size_t>(root)]);
  }
  std::vector<std::span<const std::byte>> parts(ranks);
  parts[static_cast<std::size_t>(root)] = detail::bytes_of(in);
  detail::parts_receiver received(places, group.rank());
  running.engine().deal(call, {.outgoing = parts, .expected = expected}, received);
}

/// Starts to gather objects, of which this rank's is copied; the work's value is every rank's object on the root.
template <serializable T>
work<std::vector<T>> gather_async(T value, int root = 0, const process_group& group = world(),
                                  std::source_location where = std::source_location::current()) {
  return detail::start("gather", group, where,
                       [value = std::move(value), root, group, where] { return gather(value, root, group, where); });
}

/// Starts to gather elements; both buffers must stay until the work is done.
template <lasting_buffer In, lasting_buffer Out>
  requires writable_buffer<Out> && std::same_as<std::ranges::range_value_t<In>, std::ranges::range_value_t<Out>>
work<void> gather_async(In&& in, Out&& out, int root = 0, const process_group& group = world(),
                        std::source_location where = std::source_location::current()) {
  return detail::start("gather", group, where,
                       [in = detail::view_of(in), out = detail::view_of(out), root, group, where] {
                         gather(in, out, root, group, where);
                       });
}

template <lasting_buffer In, lasting_buffer Out>
  requires writable_buffer<Out> && std::same_as<std::ranges::range_value_t<In>, std::ranges::range_value_t<Out>>
work<void> gather_async(In&& in, Out&& out, std::vector<std::size_t> counts, int root = 0,
                        const process_group& group = world(),
                        std::source_location where = std::source_location::current()) {
  return detail::start("gather", group, where,
                       [in = detail::view_of(in), out = detail::view_of(out), counts = std::move(counts), root, group,
                        where] { gather(in, out, counts, root, group, where); });
}

}  // namespace hfcomm
