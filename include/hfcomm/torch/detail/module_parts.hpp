// SPDX-License-Identifier: MIT
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include <hfcomm/core/element_type.hpp>
#include <hfcomm/ddp/parameter.hpp>

namespace torch::nn {
class Module;
}  // namespace torch::nn

namespace hfcomm::torch::detail {

/// A parameter or buffer of a module, and its memory as it is known to the averager. That memory stays, even where the
/// module has taken another.
class model_tensor {
 public:
  model_tensor(std::string name, at::Tensor tensor) : name_(std::move(name)), tensor_(std::move(tensor)) { bind(); }

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] const at::Tensor& tensor() const noexcept { return tensor_; }
  [[nodiscard]] std::span<std::byte> bytes() const;
  [[nodiscard]] tensor_layout layout() const;
  [[nodiscard]] bool is_on_device() const noexcept { return tensor_.device().is_cuda(); }

  /// Returns whether the tensor has other memory than `bytes()`.
  [[nodiscard]] bool has_moved() const;
  /// Takes the tensor's present memory.
  void bind();
  /// Describes how the tensor has changed in type or layout; empty: it has not.
  [[nodiscard]] std::string change() const;
  /// Describes why no rank can share this tensor's bytes; empty: they can.
  [[nodiscard]] std::string sharing_problem() const;

 private:
  std::string name_;
  at::Tensor tensor_;  // the module's own
  at::Tensor memory_;  // with the same memory, as it was when it was bound
};

/// The tensors of a module, each once, in the order of registration.
struct module_parts {
  std::vector<model_tensor> dense;   ///< Parameters that are trained.
  std::vector<model_tensor> sparse;  ///< Those whose gradients are sparse.
  std::vector<model_tensor> frozen;
  std::vector<model_tensor> buffers;

  /// Returns one of the tensors on a device, of which all have the same one; null where all are in host memory.
  [[nodiscard]] const model_tensor* on_device() const noexcept;
  /// Describes why this rank's module is unusable; empty: it is usable.
  [[nodiscard]] std::string problem() const;
};

/// Returns the tensors of a module but those whose names are in `ignore`.
[[nodiscard]] module_parts parts_of(const ::torch::nn::Module& module, const std::vector<std::string>& ignore);

/// Returns the type in which gradients of the tensor are averaged: that of its real numbers. `none`: it has none.
[[nodiscard]] element_type averaged_type(const at::Tensor& tensor) noexcept;

/// Returns the parameter for the averager, which holds its gradient.
[[nodiscard]] ddp_parameter parameter_of(const model_tensor& one);
[[nodiscard]] ddp_buffer buffer_of(const model_tensor& one);

}  // namespace hfcomm::torch::detail
