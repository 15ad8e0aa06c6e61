// SPDX-License-Identifier: MIT
#pragma once

#include <ATen/core/Tensor.h>

#include <initializer_list>
#include <source_location>
#include <string>

#include <hfcomm/core/reduce_op.hpp>
#include <hfcomm/engine/operation.hpp>
#include <hfcomm/group/process_group.hpp>
#include <hfcomm/torch/detail/tensor_elements.hpp>

/// Tensors as the arguments of operations on elements in memory.
namespace hfcomm::torch::detail {

/// Describes why a tensor has no elements in host memory; empty: it has.
[[nodiscard]] std::string memory_problem(const at::Tensor& tensor);

/// Returns the operation on a tensor's elements. That of an unusable tensor can only be refused.
[[nodiscard]] engines::operation tensor_call(engines::operation_name name, engines::movement pattern,
                                             const at::Tensor& tensor, int root, std::source_location where);
/// Returns the reduction of a tensor's elements.
[[nodiscard]] engines::operation tensor_reduction(engines::operation_name name, engines::movement pattern,
                                                  const at::Tensor& tensor, int root, reduce_op op,
                                                  std::source_location where);

/// Throws usage_error unless all tensors have elements of one type in host memory, and can be reduced if that is asked.
/// Tells the other ranks.
void require_tensors(engines::operation& call, std::initializer_list<const at::Tensor*> tensors,
                     const process_group& group);

}  // namespace hfcomm::torch::detail
