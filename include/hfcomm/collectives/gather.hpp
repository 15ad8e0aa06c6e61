// SPDX-License-Identifier: MIT
#pragma once

#include <source_location>
#include <string>
#include <utility>
#include <vector>

#include <hfcomm/collectives/call.hpp>

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
  const std::size_t needed = std::ranges::size(in) * static_cast<std::size_t>(group.size());
  running.require(group.rank() != root || std::ranges::size(out) == needed, [&] {
    return "the root's output has " + std::to_string(std::ranges::size(out)) + " elements, but " +
           std::to_string(group.size()) + " ranks contribute " + std::to_string(std::ranges::size(in)) + " each";
  });
  detail::table_receiver table(detail::writable_bytes_of(out));
  running.engine().exchange(call, detail::bytes_of(in), table);
}

}  // namespace hfcomm
