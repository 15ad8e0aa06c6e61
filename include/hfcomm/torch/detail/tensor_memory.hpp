// SPDX-License-Identifier: MIT
#pragma once

#include <torch/types.h>

#include <source_location>
#include <string>

#include <hfcomm/call/typed_calls.hpp>
#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/engine/operation.hpp>
#include <hfcomm/torch/detail/tensor_elements.hpp>

/// Tensors as the arguments of operations on elements in memory.
namespace hfcomm::torch::detail {

/// Returns whether a tensor is on a CUDA device.
[[nodiscard]] inline bool is_on_device(const at::Tensor& tensor) noexcept {
  return tensor.defined() && tensor.device().is_cuda();
}

/// Describes why a tensor is not dense; empty: it is.
inline std::string density_problem(const at::Tensor& tensor) {
  if (!tensor.defined()) {
    return "the tensor is undefined";
  }
  if (!is_dense(tensor)) {
    return "the tensor is sparse, quantized or nested; only dense tensors are supported";
  }
  return {};
}

/// Describes why a tensor has no elements in host memory; empty: it has.
[[nodiscard]] inline std::string host_memory_problem(const at::Tensor& tensor) {
  if (std::string problem = density_problem(tensor); !problem.empty()) {
    return problem;
  }
  if (!tensor.device().is_cpu()) {
    return hfcomm::detail::concat(
        {"the tensor is on the device ", tensor.device().str(), "; copy it into host memory, with cpu()"});
  }
  return {};
}

/// Describes why a tensor has no elements in host memory or on a CUDA device that can be used in place; empty: it has.
[[nodiscard]] inline std::string memory_problem(const at::Tensor& tensor) {
  if (std::string problem = density_problem(tensor); !problem.empty()) {
    return problem;
  }
  if (!tensor.device().is_cpu() && !tensor.device().is_cuda()) {
    return hfcomm::detail::concat(
        {"the tensor is on the device ", tensor.device().str(), "; only host memory and CUDA are supported"});
  }
  if (is_on_device(tensor) && (!tensor.is_contiguous() || tensor.is_conj() || tensor.is_neg())) {
    return hfcomm::detail::concat(
        {"the tensor on the device ", tensor.device().str(), " is not contiguous, or its conjugate or negative ",
         "is only noted; only a tensor in host memory is copied: call resolve_conj(), resolve_neg() and contiguous()"});
  }
  return {};
}

/// Returns the operation on a tensor's elements. That of an unusable tensor can only be refused.
[[nodiscard]] inline engines::operation tensor_call(engines::operation_name name, engines::movement pattern,
                                                    const at::Tensor& tensor, int root, std::source_location where) {
  if (!memory_problem(tensor).empty()) {
    return hfcomm::detail::buffer_call<std::byte>(name, pattern, 0, root, where);
  }
  return typed_call(name, pattern, tensor.scalar_type(), tensor.nbytes(), root, where);
}

}  // namespace hfcomm::torch::detail
