// SPDX-License-Identifier: MIT
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/embedding.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <span>
#include <sstream>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/core/element_type.hpp>
#include <hfcomm/ddp/parameter.hpp>
#include <hfcomm/engine/reduction/kernel.hpp>
#include <hfcomm/torch/detail/tensor_elements.hpp>

namespace hfcomm::torch::detail {

/// A parameter or buffer of a module, and its memory as it is known to the averager. That memory stays, even where the
/// module has taken another.
class model_tensor {
 public:
  model_tensor(std::string name, at::Tensor tensor) : name_(std::move(name)), tensor_(std::move(tensor)) { bind(); }

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] const at::Tensor& tensor() const noexcept { return tensor_; }
  [[nodiscard]] std::span<std::byte> bytes() const {
    return {static_cast<std::byte*>(memory_.data_ptr()), memory_.nbytes()};
  }
  [[nodiscard]] tensor_layout layout() const { return {tensor_.sizes().vec(), tensor_.strides().vec()}; }
  [[nodiscard]] bool is_on_device() const noexcept { return tensor_.device().is_cuda(); }

  /// Returns whether the tensor has other memory than `bytes()`.
  [[nodiscard]] bool has_moved() const { return tensor_.data_ptr() != memory_.data_ptr(); }
  /// Takes the tensor's present memory.
  void bind() { memory_ = tensor_.detach(); }
  /// Describes how the tensor has changed in type or layout; empty: it has not.
  [[nodiscard]] std::string change() const {
    const auto text = [](const at::Tensor& tensor) {
      std::ostringstream out;
      out << tensor.scalar_type() << " on " << tensor.device() << " of sizes " << tensor.sizes() << " and strides "
          << tensor.strides();
      return out.str();
    };
    const bool is_equal = tensor_.scalar_type() == memory_.scalar_type() && tensor_.device() == memory_.device() &&
                          tensor_.sizes() == memory_.sizes() && tensor_.strides() == memory_.strides();
    return is_equal
               ? ""
               : hfcomm::detail::concat({'"', name_, "\" was ", text(memory_), ", and is ", text(tensor_), " now"});
  }
  /// Describes why no rank can share this tensor's bytes; empty: they can.
  [[nodiscard]] std::string sharing_problem() const {
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

 private:
  std::string name_;
  at::Tensor tensor_;  // the module's own
  at::Tensor memory_;  // with the same memory, as it was when it was bound
};

/// Returns the type in which gradients of the tensor are averaged: that of its real numbers. `none`: it has none.
[[nodiscard]] inline element_type averaged_type(const at::Tensor& tensor) noexcept {
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

/// The tensors of a module, each once, in the order of registration.
struct module_parts {
  std::vector<model_tensor> dense;   ///< Parameters that are trained.
  std::vector<model_tensor> sparse;  ///< Those whose gradients are sparse.
  std::vector<model_tensor> frozen;
  std::vector<model_tensor> buffers;

  /// Returns one of the tensors on a device, of which all have the same one; null where all are in host memory.
  [[nodiscard]] const model_tensor* on_device() const {
    const auto tensors = all();
    const auto found =
        std::find_if(tensors.begin(), tensors.end(), [](const auto* one) { return one->is_on_device(); });
    return found != tensors.end() ? *found : nullptr;
  }
  /// Describes why this rank's module is unusable; empty: it is usable.
  [[nodiscard]] std::string problem() const {
    for (const model_tensor* one : all()) {
      if (std::string found = one->sharing_problem(); !found.empty()) {
        return found;
      }
    }
    if (std::string found = devices_problem(); !found.empty()) {
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

 private:
  [[nodiscard]] std::vector<const model_tensor*> all() const {
    std::vector<const model_tensor*> tensors;
    for (const auto* group : {&dense, &sparse, &frozen, &buffers}) {
      std::ranges::transform(*group, std::back_inserter(tensors), [](const model_tensor& one) { return &one; });
    }
    return tensors;
  }

  /// Describes why the parameters' devices are unusable together; empty: they are not.
  [[nodiscard]] std::string devices_problem() const {
    const model_tensor* const first = on_device();
    for (const model_tensor* one : all()) {
      if (one->is_on_device() && one->tensor().device() != first->tensor().device()) {
        return hfcomm::detail::concat({"the tensor \"", first->name(), "\" is on the device ",
                                       first->tensor().device().str(), ", \"", one->name(), "\" on ",
                                       one->tensor().device().str(),
                                       "; a process trains on one device: start one for each"});
      }
    }
    for (const model_tensor& one : sparse) {
      if (one.is_on_device()) {
        return hfcomm::detail::concat(
            {"the gradient of parameter \"", one.name(),
             "\" is sparse, on a device; only sparse gradients in host memory can be averaged"});
      }
    }
    return {};
  }
};

/// Returns the weights whose modules give them sparse gradients.
inline std::unordered_set<const c10::TensorImpl*> sparse_weights(const ::torch::nn::Module& module) {
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

/// Returns the tensors of a module but those whose names are in `ignore`.
[[nodiscard]] inline module_parts parts_of(const ::torch::nn::Module& module, const std::vector<std::string>& ignore) {
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

/// Returns the parameter for the averager, which holds its gradient.
[[nodiscard]] inline ddp_parameter parameter_of(const model_tensor& one) {
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

[[nodiscard]] inline ddp_buffer buffer_of(const model_tensor& one) {
  return {one.name(), one.bytes(), one.is_on_device(), one.layout()};
}

}  // namespace hfcomm::torch::detail
