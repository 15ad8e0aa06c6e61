// SPDX-License-Identifier: MIT
#pragma once

#include <torch/types.h>

#include <hfcomm/call/typed_calls.hpp>
#include <hfcomm/core/config.hpp>
#include <hfcomm/engine/reduction/kernel_for.hpp>
#include <hfcomm/torch/detail/tensor_memory.hpp>

namespace hfcomm::torch::detail {

HFCOMM_INLINE std::string type_text(const at::Tensor& tensor) { return std::string(tensor.dtype().name()); }

HFCOMM_INLINE std::string memory_problem(const at::Tensor& tensor) {
  if (!tensor.defined()) {
    return "the tensor is undefined";
  }
  if (tensor.layout() != at::kStrided || tensor.is_quantized()) {
    return "the tensor is sparse or quantized; only dense tensors are supported";
  }
  if (!tensor.device().is_cpu()) {
    return "the tensor is on the device " + tensor.device().str() +
           "; only host memory is supported, or a device_span of its elements with <hfcomm/nccl.hpp>";
  }
  return {};
}

HFCOMM_INLINE engines::operation tensor_call(engines::operation_name name, engines::movement pattern,
                                             const at::Tensor& tensor, int root, std::source_location where) {
  if (!memory_problem(tensor).empty()) {
    return hfcomm::detail::buffer_call<std::byte>(name, pattern, 0, root, where);
  }
  return typed_call(name, pattern, tensor.scalar_type(), tensor.nbytes(), root, where);
}

HFCOMM_INLINE engines::operation tensor_reduction(engines::operation_name name, engines::movement pattern,
                                                  const at::Tensor& tensor, int root, reduce_op op,
                                                  std::source_location where) {
  auto call = tensor_call(name, pattern, tensor, root, where);
  const bool is_bool = tensor.defined() && tensor.scalar_type() == at::kBool;
  call.element = is_bool ? element_type::uint8 : call.element;
  hfcomm::detail::set_reduction(call, is_bool ? reduction_of_bools(op) : op);
  call.kernel = hfcomm::detail::kernel_for(call.element);
  return call;
}

HFCOMM_INLINE void require_tensors(engines::operation& call, std::initializer_list<const at::Tensor*> tensors,
                                   const process_group& group) {
  std::string problem;
  const at::Tensor& first = **tensors.begin();
  for (const at::Tensor* one : tensors) {
    if (problem.empty()) {
      problem = memory_problem(*one);
    }
    if (problem.empty() && one->scalar_type() != first.scalar_type()) {
      problem = "the output is of type " + type_text(*one) + ", the input of type " + type_text(first);
    }
  }
  if (problem.empty() && call.reduces && call.element == element_type::none) {
    problem = "tensors of type " + type_text(first) + " cannot be reduced";
  }
  if (!problem.empty()) {
    hfcomm::detail::running_call running(group, call);
    running.refuse(problem);
  }
}

}  // namespace hfcomm::torch::detail
