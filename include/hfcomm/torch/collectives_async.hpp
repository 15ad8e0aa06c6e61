// SPDX-License-Identifier: MIT
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <span>
#include <vector>

#include <hfcomm/call/counts_of_ranks.hpp>
#include <hfcomm/core/call_site.hpp>
#include <hfcomm/core/config.hpp>
#include <hfcomm/core/reduce_op.hpp>
#include <hfcomm/group/process_group.hpp>
#include <hfcomm/group/session.hpp>
#include <hfcomm/group/work.hpp>

/// The collectives on tensors, started: they return at once, and the work is done when the operation is. What
/// torch/collectives.hpp says of the blocking forms holds. Bad arguments are thrown here, all other errors by the work.
///
/// The work keeps the tensors' memory until it is done; nobody may touch it before. A tensor that is not contiguous is
/// copied here, and copied back before the work is done. Counts are copied.
///
/// On a device the operation runs on a stream of the group's own, after the work that LibTorch's current stream has by
/// now (see stream_scope.hpp). `wait` waits on the host until the device is done, and so do the asynchronous operations
/// that are started later in this group. For a wait in stream order, use the device forms of <hfcomm/nccl.hpp>.
namespace hfcomm::torch {

work<void> all_reduce_async(const at::Tensor& data, detail::any_reduction op = reduce_op::sum,
                            detail::or_group group = {}, call_site where = call_site::current());
work<void> reduce_async(const at::Tensor& data, int root, detail::any_reduction op = reduce_op::sum,
                        detail::or_group group = {}, call_site where = call_site::current());
work<void> broadcast_async(const at::Tensor& data, detail::optional_root root = 0, detail::or_group group = {},
                           call_site where = call_site::current());

/// The work's value is every rank's tensor, in rank order.
work<std::vector<at::Tensor>> all_gather_async(const at::Tensor& data, const process_group& group = world(),
                                               call_site where = call_site::current());
work<void> all_gather_async(const at::Tensor& in, const at::Tensor& out, const process_group& group = world(),
                            call_site where = call_site::current());
work<void> all_gather_async(const at::Tensor& in, const at::Tensor& out, const hfcomm::detail::counts_of_ranks& counts,
                            const process_group& group = world(), call_site where = call_site::current());

/// The work's value is every rank's tensor, in rank order, on the root; nothing elsewhere.
work<std::vector<at::Tensor>> gather_async(const at::Tensor& data, detail::optional_root root = 0,
                                           detail::or_group group = {}, call_site where = call_site::current());
work<void> gather_async(const at::Tensor& in, const at::Tensor& out, detail::optional_root root = 0,
                        detail::or_group group = {}, call_site where = call_site::current());
work<void> gather_async(const at::Tensor& in, const at::Tensor& out, const hfcomm::detail::counts_of_ranks& counts,
                        detail::optional_root root = 0, detail::or_group group = {},
                        call_site where = call_site::current());

work<void> scatter_async(const at::Tensor& in, const at::Tensor& out, detail::optional_root root = 0,
                         detail::or_group group = {}, call_site where = call_site::current());
work<void> scatter_async(const at::Tensor& in, const at::Tensor& out, const hfcomm::detail::counts_of_ranks& counts,
                         detail::optional_root root = 0, detail::or_group group = {},
                         call_site where = call_site::current());

work<void> reduce_scatter_async(const at::Tensor& in, const at::Tensor& out, detail::any_reduction op = reduce_op::sum,
                                detail::or_group group = {}, call_site where = call_site::current());
work<void> reduce_scatter_async(const at::Tensor& in, const at::Tensor& out,
                                const hfcomm::detail::counts_of_ranks& counts,
                                detail::any_reduction op = reduce_op::sum, detail::or_group group = {},
                                call_site where = call_site::current());

work<void> all_to_all_async(const at::Tensor& in, const at::Tensor& out, const process_group& group = world(),
                            call_site where = call_site::current());
work<void> all_to_all_async(const at::Tensor& in, const hfcomm::detail::counts_of_ranks& in_counts,
                            const at::Tensor& out, const hfcomm::detail::counts_of_ranks& out_counts,
                            const process_group& group = world(), call_site where = call_site::current());

}  // namespace hfcomm::torch
