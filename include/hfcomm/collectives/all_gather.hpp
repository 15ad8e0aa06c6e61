// SPDX-License-Identifier: MIT
#pragma once

#include <source_location>
#include <string>
#include <utility>
#include <vector>

#include <hfcomm/collectives/call.hpp>

namespace hfcomm {

/// Every rank's object, in rank order, on every rank. The objects may differ in size. (detectron2's `all_gather`,
/// torch's `all_gather_object`; nothing is padded, nothing touches a GPU.)
template <serializable T>
[[nodiscard]] std::vector<T> all_gather(const T& value, const process_group& group = world(),
                                        std::source_location where = std::source_location::current()) {
  return detail::collect_objects("all_gather", movement::to_all, value, -1, group, where);
}

/// Every rank's elements, in rank order, in `out` on every rank: `out` holds `in.size() * group.size()` elements
/// (usage_error otherwise). `in` may be this rank's own place in `out`.
template <buffer In, writable_buffer Out>
  requires std::same_as<std::ranges::range_value_t<In>, std::ranges::range_value_t<Out>>
void all_gather(const In& in, Out&& out, const process_group& group = world(),
                std::source_location where = std::source_location::current()) {
  auto call = detail::buffer_call<std::ranges::range_value_t<In>>("all_gather", movement::to_all, std::ranges::size(in),
                                                                  -1, where);
  detail::running_call running(group, call);
  const std::size_t needed = std::ranges::size(in) * static_cast<std::size_t>(group.size());
  running.require(std::ranges::size(out) == needed, [&] {
    return "the output has " + std::to_string(std::ranges::size(out)) + " elements, but " +
           std::to_string(group.size()) + " ranks contribute " + std::to_string(std::ranges::size(in)) + " each";
  });
  detail::table_receiver table(detail::writable_bytes_of(out));
  running.engine().exchange(call, detail::bytes_of(in), table);
}

}  // namespace hfcomm
