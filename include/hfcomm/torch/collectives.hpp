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

/// The collectives on tensors of LibTorch.
///
/// They are those on spans of the tensors' elements, row by row: the ranks' tensors must have the same type and number
/// of elements (mismatch_error otherwise); their sizes are not compared. A rank may call the form on spans, and another
/// rank this one. A tensor that is not contiguous is copied, and copied back where it is written. Autograd records
/// nothing, but knows which tensors were written: a backward pass that needs their old elements throws.
///
/// Tensors on a CUDA device are device spans: the operation runs over NCCL, on LibTorch's current stream (see
/// stream_scope.hpp), and returns at once. They must be contiguous. What `<hfcomm/nccl.hpp>` says of its functions
/// holds, also where ranks do not agree: they only notice it in a group with device checks. All tensors of a call are
/// in host memory or on one device, and that kind of memory is the same on all ranks.
///
/// The forms with counts have parts of different lengths, one after another along the first dimension. The counts are
/// in rows, one for each rank. The rows of a call's tensors have equally many elements (usage_error otherwise).
///
/// All throw usage_error, and peer_error on the other ranks, for a tensor that is undefined, sparse, quantized, nested
/// or on another kind of device; where an output has another type or device than the input; and where a rank would
/// write into a tensor of whose elements several share memory, such as an expanded one. To send a tensor whose sizes
/// the other ranks do not know, give it to hfcomm's own functions as an object: see torch/serialization.hpp.
///
/// Thread-safety: as hfcomm's collectives.
namespace hfcomm::torch {

namespace detail {

using hfcomm::detail::any_reduction;
using hfcomm::detail::optional_root;
using hfcomm::detail::or_group;

}  // namespace detail

/// Reduces element by element, in place, on every rank. Of bools, a sum or maximum is whether any is true, and a
/// product or minimum whether all are. Complex numbers have no minimum or maximum, and integers no average
/// (usage_error). On a device, 16-bit integers and complex numbers have no reduction.
void all_reduce(const at::Tensor& data, detail::any_reduction op = reduce_op::sum, detail::or_group group = {},
                call_site where = call_site::current());

/// Reduces element by element into the root's tensor, in place; the other ranks' tensors stay as they are.
void reduce(const at::Tensor& data, int root, detail::any_reduction op = reduce_op::sum, detail::or_group group = {},
            call_site where = call_site::current());

/// Gives every rank the root's elements.
void broadcast(const at::Tensor& data, detail::optional_root root = 0, detail::or_group group = {},
               call_site where = call_site::current());

/// Returns every rank's tensor, in rank order, on every rank, with the sizes of this rank's one.
[[nodiscard]] std::vector<at::Tensor> all_gather(const at::Tensor& data, const process_group& group = world(),
                                                 call_site where = call_site::current());
/// Gathers every rank's elements, in rank order, in `out`, which has as many elements as all inputs together.
void all_gather(const at::Tensor& in, const at::Tensor& out, const process_group& group = world(),
                call_site where = call_site::current());
/// The same where rank r contributes `counts[r]` rows. The counts are equal on all ranks (mismatch_error otherwise).
void all_gather(const at::Tensor& in, const at::Tensor& out, const hfcomm::detail::counts_of_ranks& counts,
                const process_group& group = world(), call_site where = call_site::current());

/// Returns every rank's tensor, in rank order, on the root, with the sizes of the root's one; nothing elsewhere.
[[nodiscard]] std::vector<at::Tensor> gather(const at::Tensor& data, detail::optional_root root = 0,
                                             detail::or_group group = {}, call_site where = call_site::current());
/// Gathers every rank's elements, in rank order, in the root's `out`; elsewhere `out` is ignored and may be undefined.
void gather(const at::Tensor& in, const at::Tensor& out, detail::optional_root root = 0, detail::or_group group = {},
            call_site where = call_site::current());
/// The same where rank r contributes `counts[r]` rows. Only the root's `out` and `counts` are used; where a rank
/// contributes another number, every rank throws mismatch_error.
void gather(const at::Tensor& in, const at::Tensor& out, const hfcomm::detail::counts_of_ranks& counts,
            detail::optional_root root = 0, detail::or_group group = {}, call_site where = call_site::current());

/// Gives each rank its part of the root's `in`, which has `out.numel()` elements for each rank, in rank order;
/// elsewhere `in` is ignored and may be undefined.
void scatter(const at::Tensor& in, const at::Tensor& out, detail::optional_root root = 0, detail::or_group group = {},
             call_site where = call_site::current());
/// The same with `counts[r]` rows for rank r. Only the root's `in` and `counts` are used; where a rank's `out` has
/// another number of rows, every rank throws mismatch_error.
void scatter(const at::Tensor& in, const at::Tensor& out, const hfcomm::detail::counts_of_ranks& counts,
             detail::optional_root root = 0, detail::or_group group = {}, call_site where = call_site::current());

/// Reduces element by element, and leaves each rank its part of the result: `in` has `out.numel()` elements for each
/// rank.
void reduce_scatter(const at::Tensor& in, const at::Tensor& out, detail::any_reduction op = reduce_op::sum,
                    detail::or_group group = {}, call_site where = call_site::current());
/// The same with `counts[r]` rows for rank r. The counts are equal on all ranks (mismatch_error otherwise).
void reduce_scatter(const at::Tensor& in, const at::Tensor& out, const hfcomm::detail::counts_of_ranks& counts,
                    detail::any_reduction op = reduce_op::sum, detail::or_group group = {},
                    call_site where = call_site::current());

/// Sends the r-th of equal parts of `in` to rank r; `out` gets the parts for this rank, in rank order.
void all_to_all(const at::Tensor& in, const at::Tensor& out, const process_group& group = world(),
                call_site where = call_site::current());
/// Sends `in_counts[r]` rows of `in` to rank r, and receives `out_counts[r]` rows from it. The sender's count must
/// equal its receiver's; otherwise every rank throws mismatch_error.
void all_to_all(const at::Tensor& in, const hfcomm::detail::counts_of_ranks& in_counts, const at::Tensor& out,
                const hfcomm::detail::counts_of_ranks& out_counts, const process_group& group = world(),
                call_site where = call_site::current());

}  // namespace hfcomm::torch
