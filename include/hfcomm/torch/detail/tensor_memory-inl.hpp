// SPDX-License-Identifier: MIT
#pragma once

#include <torch/types.h>

#include <string>

#include <hfcomm/call/typed_calls.hpp>
#include <hfcomm/core/config.hpp>
#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/torch/detail/tensor_memory.hpp>

namespace hfcomm::torch::detail {

/// Describes why a tensor is not dense; empty: it is.
HFCOMM_INLINE std::string density_problem(const at::Tensor& tensor) {
  if (!tensor.defined()) {
    return "the tensor is undefined";
  }
  if (!is_dense(tensor)) {
    return "the tensor is sparse, quantized or nested; only dense tensors are supported";
  }
  return {};
}

HFCOMM_INLINE std::string host_memory_problem(const at::Tensor& tensor) {
  if (std::string problem = density_problem(tensor); !problem.empty()) {
    return problem;
  }
  if (!tensor.device().is_cpu()) {
    return hfcomm::detail::concat(
        {"the tensor is on the device ", tensor.device().str(), "; copy it into host memory, with cpu()"});
  }
  return {};
}

HFCOMM_INLINE std::string memory_problem(const at::Tensor& tensor) {
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

HFCOMM_INLINE bool is_on_device(const at::Tensor& tensor) noexcept {
  return tensor.defined() && tensor.device().is_cuda();
}

HFCOMM_INLINE engines::operation tensor_call(engines::operation_name name, engines::movement pattern,
                                             const at::Tensor& tensor, int root, std::source_location where) {
  if (!memory_problem(tensor).empty()) {
    return hfcomm::detail::buffer_call<std::byte>(name, pattern, 0, root, where);
  }
  return typed_call(name, pattern, tensor.scalar_type(), tensor.nbytes(), root, where);
}

}  // namespace hfcomm::torch::detail
