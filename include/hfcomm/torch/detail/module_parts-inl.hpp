// SPDX-License-Identifier: MIT
#pragma once

#include <torch/nn/modules/embedding.h>

#include <algorithm>
#include <sstream>
#include <unordered_set>
#include <utility>

#include <hfcomm/core/config.hpp>
#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/engine/reduction/kernel.hpp>
#include <hfcomm/torch/detail/module_parts.hpp>
#include <hfcomm/torch/detail/tensor_elements.hpp>

namespace hfcomm::torch::detail {

HFCOMM_INLINE std::span<std::byte> model_tensor::bytes() const {
  return {static_cast<std::byte*>(memory_.data_ptr()), memory_.nbytes()};
}

HFCOMM_INLINE tensor_layout model_tensor::layout() const { return {tensor_.sizes().vec(), tensor_.strides().vec()}; }

HFCOMM_INLINE bool model_tensor::has_moved() const { return tensor_.data_ptr() != memory_.data_ptr(); }

HFCOMM_INLINE void model_tensor::bind() { memory_ = tensor_.detach(); }

HFCOMM_INLINE std::string model_tensor::change() const {
  const auto text = [](const at::Tensor& tensor) {
    std::ostringstream out;
    out << tensor.scalar_type() << " on " << tensor.device() << " of sizes " << tensor.sizes() << " and strides "
        << tensor.strides();
    return out.str();
  };
  const bool is_equal = tensor_.scalar_type() == memory_.scalar_type() && tensor_.device() == memory_.device() &&
                        tensor_.sizes() == memory_.sizes() && tensor_.strides() == memory_.strides();
  return is_equal ? ""
                  : hfcomm::detail::concat({'"', name_, "\" was ", text(memory_), ", and is ", text(tensor_), " now"});
}

HFCOMM_INLINE std::string model_tensor::sharing_problem() const {
  const std::string start = hfcomm::detail::concat({"the tensor \"", name_, "\" "});
  if (!tensor_.device().is_cpu() && !tensor_.device().is_cuda()) {
    return hfcomm::detail::concat(
        {start, "is on the device ", tensor_.device().str(), "; only host memory and CUDA are supported"});
  }
  if (!is_dense(tensor_)) {
    return hfcomm::detail::concat({start, "is sparse, quantized or nested; only dense tensors are supported"});
  }
  if (!tensor_.is_non_overlapping_and_dense()) {
    return hfcomm::detail::concat({start, "has gaps or overlaps in memory; make it contiguous"});
  }
  return {};
}

HFCOMM_INLINE element_type averaged_type(const at::Tensor& tensor) noexcept {
  switch (tensor.scalar_type()) {
    case at::kHalf: return element_type::float16;
    case at::kBFloat16: return element_type::bfloat16;
    case at::kFloat:
    case at::kComplexFloat: return element_type::float32;
    case at::kDouble:
    case at::kComplexDouble: return element_type::float64;
    default: return element_type::none;
  }
}

HFCOMM_INLINE const model_tensor* module_parts::on_device() const noexcept {
  for (const auto* group : {&dense, &sparse, &frozen, &buffers}) {
    for (const model_tensor& one : *group) {
      if (one.is_on_device()) {
        return &one;
      }
    }
  }
  return nullptr;
}

/// Describes why the parameters' devices are unusable together; empty: they are not.
HFCOMM_INLINE std::string devices_problem(const module_parts& parts) {
  const model_tensor* const first = parts.on_device();
  for (const auto* group : {&parts.dense, &parts.sparse, &parts.frozen, &parts.buffers}) {
    for (const model_tensor& one : *group) {
      if (one.is_on_device() && one.tensor().device() != first->tensor().device()) {
        return hfcomm::detail::concat(
            {"the tensor \"", first->name(), "\" is on the device ", first->tensor().device().str(), ", \"", one.name(),
             "\" on ", one.tensor().device().str(), "; a process trains on one device: start one for each"});
      }
    }
  }
  for (const model_tensor& one : parts.sparse) {
    if (one.is_on_device()) {
      return hfcomm::detail::concat(
          {"the gradient of parameter \"", one.name(),
           "\" is sparse, on a device; only sparse gradients in host memory can be averaged"});
    }
  }
  return {};
}

HFCOMM_INLINE std::string module_parts::problem() const {
  for (const auto* group : {&dense, &sparse, &frozen, &buffers}) {
    for (const model_tensor& one : *group) {
      if (std::string found = one.sharing_problem(); !found.empty()) {
        return found;
      }
    }
  }
  if (std::string found = devices_problem(*this); !found.empty()) {
    return found;
  }
  for (const auto* group : {&dense, &sparse}) {
    for (const model_tensor& one : *group) {
      if (averaged_type(one.tensor()) == element_type::none) {
        return hfcomm::detail::concat({"parameter \"", one.name(), "\" is of type ",
                                       std::string(one.tensor().dtype().name()),
                                       ", whose gradients cannot be averaged"});
      }
      if (!one.tensor().is_leaf()) {
        return hfcomm::detail::concat(
            {"parameter \"", one.name(), "\" is calculated from other tensors, so it gets no gradient"});
      }
    }
  }
  return {};
}

/// Returns the weights whose modules give them sparse gradients.
HFCOMM_INLINE std::unordered_set<const c10::TensorImpl*> sparse_weights(const ::torch::nn::Module& module) {
  std::unordered_set<const c10::TensorImpl*> found;
  for (const auto& part : module.modules()) {
    if (const auto* embedding = part->as<::torch::nn::EmbeddingImpl>();
        embedding != nullptr && embedding->options.sparse()) {
      found.insert(embedding->weight.unsafeGetTensorImpl());
    }
    if (const auto* bag = part->as<::torch::nn::EmbeddingBagImpl>(); bag != nullptr && bag->options.sparse()) {
      found.insert(bag->weight.unsafeGetTensorImpl());
    }
  }
  return found;
}

HFCOMM_INLINE module_parts parts_of(const ::torch::nn::Module& module, const std::vector<std::string>& ignore) {
  module_parts parts;
  const auto sparse = sparse_weights(module);
  std::unordered_set<const c10::TensorImpl*> known;
  const auto is_new = [&](const std::string& name, const at::Tensor& tensor) {
    return tensor.defined() && known.insert(tensor.unsafeGetTensorImpl()).second &&
           std::find(ignore.begin(), ignore.end(), name) == ignore.end();
  };
  for (const auto& item : module.named_parameters()) {
    if (is_new(item.key(), item.value())) {
      auto& group = !item.value().requires_grad()                           ? parts.frozen
                    : sparse.count(item.value().unsafeGetTensorImpl()) != 0 ? parts.sparse
                                                                            : parts.dense;
      group.emplace_back(item.key(), item.value());
    }
  }
  for (const auto& item : module.named_buffers()) {
    if (is_new(item.key(), item.value())) {
      parts.buffers.emplace_back(item.key(), item.value());
    }
  }
  return parts;
}

HFCOMM_INLINE ddp_parameter parameter_of(const model_tensor& one) {
  ddp_parameter parameter;
  parameter.name = one.name();
  parameter.type = averaged_type(one.tensor());
  parameter.value = one.bytes();
  parameter.layout = one.layout();
  parameter.on_device = one.is_on_device();
  switch (parameter.type) {
    case element_type::float16: parameter.kernel = &hfcomm::detail::reduce_elements<element_type::float16>; break;
    case element_type::bfloat16: parameter.kernel = &hfcomm::detail::reduce_elements<element_type::bfloat16>; break;
    case element_type::float32: parameter.kernel = &hfcomm::detail::reduce_elements<element_type::float32>; break;
    default: parameter.kernel = &hfcomm::detail::reduce_elements<element_type::float64>;
  }
  return parameter;
}

HFCOMM_INLINE ddp_buffer buffer_of(const model_tensor& one) {
  return {one.name(), one.bytes(), one.is_on_device(), one.layout()};
}

}  // namespace hfcomm::torch::detail
