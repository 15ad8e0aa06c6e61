// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <span>
#include <utility>

#include <hfcomm/call/argument_checks.hpp>
#include <hfcomm/call/uneven_parts.hpp>
#include <hfcomm/collectives/received_parts.hpp>
#include <hfcomm/core/function_ref.hpp>
#include <hfcomm/engine/operation.hpp>
#include <hfcomm/group/process_group.hpp>

/// The operations on parts whose lengths only their senders know. The lengths come with the parts.
namespace hfcomm::detail {

/// Returns memory for parts of these numbers of elements, one after another, which are `sum` elements.
using parts_memory = function_ref<std::span<std::byte>(std::span<const std::size_t> counts, std::size_t sum)>;

/// Gathers every rank's elements on the ranks that receive. On the others `memory` is not called.
void collect_parts(operation&& call, const const_elements& in, parts_memory memory, const process_group& group);

/// Sends each rank its part.
void exchange_parts(operation&& call, const const_elements& in, std::span<const std::size_t> in_counts,
                    parts_memory memory, const process_group& group);

/// Returns a function that makes room in `parts`.
template <class T>
auto memory_in(received_parts<T>& parts) {
  return [&](std::span<const std::size_t> counts, std::size_t sum) {
    parts.counts.assign(counts.begin(), counts.end());
    parts.elements.resize(sum);
    return std::as_writable_bytes(std::span(parts.elements));
  };
}

/// Returns what `collect_parts` has received.
template <class T>
received_parts<T> received_from_all(operation&& call, const const_elements& in, const process_group& group) {
  received_parts<T> parts;
  collect_parts(std::move(call), in, memory_in(parts), group);
  return parts;
}

/// Returns what `exchange_parts` has received.
template <class T>
received_parts<T> received_by_exchange(operation&& call, const const_elements& in,
                                       std::span<const std::size_t> in_counts, const process_group& group) {
  received_parts<T> parts;
  exchange_parts(std::move(call), in, in_counts, memory_in(parts), group);
  return parts;
}

}  // namespace hfcomm::detail
