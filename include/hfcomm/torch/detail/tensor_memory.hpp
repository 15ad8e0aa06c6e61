// SPDX-License-Identifier: MIT
#pragma once

#include <ATen/core/Tensor.h>

#include <source_location>
#include <string>

#include <hfcomm/engine/operation.hpp>
#include <hfcomm/torch/detail/tensor_elements.hpp>

/// Tensors as the arguments of operations on elements in memory.
namespace hfcomm::torch::detail {

/// Describes why a tensor has no elements in host memory; empty: it has.
[[nodiscard]] std::string host_memory_problem(const at::Tensor& tensor);
/// Describes why a tensor has no elements in host memory or on a CUDA device that can be used in place; empty: it has.
[[nodiscard]] std::string memory_problem(const at::Tensor& tensor);

/// Returns whether a tensor is on a CUDA device.
[[nodiscard]] bool is_on_device(const at::Tensor& tensor) noexcept;

/// Returns the operation on a tensor's elements. That of an unusable tensor can only be refused.
[[nodiscard]] engines::operation tensor_call(engines::operation_name name, engines::movement pattern,
                                             const at::Tensor& tensor, int root, std::source_location where);

}  // namespace hfcomm::torch::detail
