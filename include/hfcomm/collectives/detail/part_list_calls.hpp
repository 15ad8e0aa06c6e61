// SPDX-License-Identifier: MIT
#pragma once

#include <span>

#include <hfcomm/call/argument_checks.hpp>
#include <hfcomm/engine/operation.hpp>
#include <hfcomm/group/process_group.hpp>

/// The operations on lists of parts in host memory, one for each rank, without their type. Each enters the group,
/// checks its arguments, and passes bytes to the engine.
namespace hfcomm::detail {

using part_list = std::span<const elements>;
using const_part_list = std::span<const const_elements>;

void all_gather_list(operation&& call, const const_elements& in, part_list out, const process_group& group);
void gather_list(operation&& call, const const_elements& in, part_list out, const process_group& group);
void scatter_list(operation&& call, const_part_list in, const elements& out, const process_group& group);
void all_to_all_list(operation&& call, const_part_list in, part_list out, const process_group& group);
void reduce_scatter_list(operation&& call, const_part_list in, const elements& out, const process_group& group);

// Their checks, which throw usage_error and tell the other ranks. A list that only the root has is ignored elsewhere.
void check_all_gather_list(checked_call& running, const const_elements& in, part_list out);
void check_gather_list(checked_call& running, const const_elements& in, part_list out);
void check_scatter_list(checked_call& running, const_part_list in, const const_elements& out);
void check_all_to_all_list(checked_call& running, const_part_list in, part_list out);
void check_reduce_scatter_list(checked_call& running, const_part_list in, const const_elements& out);

}  // namespace hfcomm::detail
