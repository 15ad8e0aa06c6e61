// SPDX-License-Identifier: MIT
#pragma once

#include <ATen/core/Tensor.h>

#include <hfcomm/core/call_site.hpp>
#include <hfcomm/core/config.hpp>
#include <hfcomm/group/process_group.hpp>
#include <hfcomm/group/session.hpp>
#include <hfcomm/group/work.hpp>
#include <hfcomm/serialization/archive.hpp>

/// Tensors of LibTorch as objects: `hfcomm::all_gather(tensor)` returns tensors of any types and sizes, and a list or
/// map of tensors may be broadcast. A received tensor is a new one. So `hfcomm::broadcast(parameter)` would leave a
/// module's parameter as it was, and does not compile; `hfcomm::torch::broadcast(parameter)` writes into it. hfcomm's
/// archives find these functions in their namespace.
namespace hfcomm::serialization {

/// Writes a tensor's type, sizes and elements, row by row, or that it is undefined. Throws usage_error for one that is
/// sparse, quantized, nested, not in host memory, or of a type that neither C++ nor hfcomm has.
void save(output_archive& archive, const at::Tensor& tensor);

/// Reads a tensor into memory of its own, without a gradient. Throws decode_error for anything else.
void load(input_archive& archive, at::Tensor& tensor);

}  // namespace hfcomm::serialization

namespace hfcomm {

// Calls that are refused: the variable would get another tensor, and a module's parameter stay as it was.

void broadcast(at::Tensor&, detail::optional_root = 0, detail::or_group = {},  // use hfcomm::torch::broadcast
               call_site = call_site::current()) = delete;
work<void> broadcast_async(at::Tensor&, detail::optional_root = 0,
                           detail::or_group = {},  // use hfcomm::torch::broadcast_async
                           call_site = call_site::current()) = delete;

}  // namespace hfcomm
