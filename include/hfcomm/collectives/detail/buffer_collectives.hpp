// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <span>

#include <hfcomm/call/argument_checks.hpp>
#include <hfcomm/engine/operation.hpp>
#include <hfcomm/group/process_group.hpp>

/// The operations on elements in host memory, without their type. Each enters the group, checks its arguments, and
/// passes bytes to the engine. `call` has the name, the type, the root and the reduction. The `_parts` forms are for
/// parts of different lengths: `counts[r]` elements for, or from, rank r.
namespace hfcomm::detail {

void all_gather_buffer(operation&& call, const const_elements& in, const elements& out, const process_group& group);
void all_gather_parts(operation&& call, const const_elements& in, const elements& out,
                      std::span<const std::size_t> counts, const process_group& group);
void all_reduce_buffer(operation&& call, const const_elements& in, const elements& out, const process_group& group);
void all_to_all_buffer(operation&& call, const const_elements& in, const elements& out, const process_group& group);
void all_to_all_parts(operation&& call, const const_elements& in, std::span<const std::size_t> in_counts,
                      const elements& out, std::span<const std::size_t> out_counts, const process_group& group);
void broadcast_buffer(operation&& call, const elements& data, const process_group& group);
void gather_buffer(operation&& call, const const_elements& in, const elements& out, const process_group& group);
void gather_parts(operation&& call, const const_elements& in, const elements& out, std::span<const std::size_t> counts,
                  const process_group& group);
void reduce_buffer(operation&& call, const const_elements& in, const elements& out, const process_group& group);
void reduce_scatter_buffer(operation&& call, const const_elements& in, const elements& out, const process_group& group);
void reduce_scatter_parts(operation&& call, const const_elements& in, const elements& out,
                          std::span<const std::size_t> counts, const process_group& group);
void scatter_buffer(operation&& call, const const_elements& in, const elements& out, const process_group& group);
void scatter_parts(operation&& call, const const_elements& in, const elements& out, std::span<const std::size_t> counts,
                   const process_group& group);

class running_call;

/// Gives every rank the part of the root's `parts` that is for it, in `out`. Other ranks have empty parts.
void receive_from_root(running_call& running, const operation& call, std::span<const std::span<const std::byte>> parts,
                       std::span<std::byte> out);

}  // namespace hfcomm::detail
