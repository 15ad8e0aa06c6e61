// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <hfcomm/core/call_site.hpp>
#include <hfcomm/core/config.hpp>
#include <hfcomm/core/reduce_op.hpp>
#include <hfcomm/ddp/parameter.hpp>
#include <hfcomm/group/process_group.hpp>
#include <hfcomm/group/session.hpp>
#include <hfcomm/group/work.hpp>

/// Reductions of a whole model at once, for training loops without `distributed_data_parallel`.
namespace hfcomm {

/// Reduces the gradients of all parameters, of any types, in place on every rank, in few operations: grouped by type,
/// packed into buckets of up to `bucket_bytes` (a larger gradient is sent alone). Each gradient gets the bits that an
/// `all_reduce` of it alone would give.
///
/// All ranks bring the same parameters in the same order, with the same `bucket_bytes`; otherwise every rank throws
/// mismatch_error naming the first parameter that differs, and no data moves. Throws usage_error where a parameter's
/// type does not have that reduction or its memory is at address 0 (peer_error on the other ranks). Call it once, after
/// backward: nothing overlaps, unlike in `distributed_data_parallel`. (MMEngine's `all_reduce_params`, which takes the
/// tensors to reduce themselves.)
void all_reduce_params(std::span<const ddp_parameter> parameters,
                       detail::average_or<detail::any_reduction> op = reduce_op::average,
                       std::size_t bucket_bytes = std::size_t{25} << 20, detail::or_group group = {},
                       call_site where = call_site::current());

/// The same for the parameters' values: averages models that were trained separately for a while.
void all_reduce_param_values(std::span<const ddp_parameter> parameters,
                             detail::average_or<detail::any_reduction> op = reduce_op::average,
                             std::size_t bucket_bytes = std::size_t{25} << 20, detail::or_group group = {},
                             call_site where = call_site::current());

/// Starts `all_reduce_params`; the gradients must stay, untouched, until the work is done.
work<void> all_reduce_params_async(std::vector<ddp_parameter> parameters,
                                   detail::average_or<detail::any_reduction> op = reduce_op::average,
                                   std::size_t bucket_bytes = std::size_t{25} << 20, detail::or_group group = {},
                                   call_site where = call_site::current());

/// Starts `all_reduce_param_values`; the values must stay, untouched, until the work is done.
work<void> all_reduce_param_values_async(std::vector<ddp_parameter> parameters,
                                         detail::average_or<detail::any_reduction> op = reduce_op::average,
                                         std::size_t bucket_bytes = std::size_t{25} << 20, detail::or_group group = {},
                                         call_site where = call_site::current());

}  // namespace hfcomm
