// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <span>

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

/// Returns the parts that `collect(memory)` has received.
template <class T, class Collect>
received_parts<T> receive_parts(Collect collect) {
  received_parts<T> parts;
  collect([&](std::span<const std::size_t> counts, std::size_t sum) {
    parts.counts.assign(counts.begin(), counts.end());
    parts.elements.resize(sum);
    return std::as_writable_bytes(std::span(parts.elements));
  });
  return parts;
}

}  // namespace hfcomm::detail
