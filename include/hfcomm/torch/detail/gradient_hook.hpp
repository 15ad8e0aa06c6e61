// SPDX-License-Identifier: MIT
#pragma once

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

namespace hfcomm::torch::detail {

/// A post hook of a parameter's accumulator, which LibTorch calls after the gradient was added to `.grad`. It is
/// attached to the accumulator that the parameter has now, and which `set_data` replaces.
class gradient_hook {
 public:
  /// A function object of LibTorch that calls `owner.on_gradient(number)`.
  template <class Owner>
  class function final : public ::torch::autograd::FunctionPostHook {
   public:
    function(Owner& owner, std::size_t number) : owner_(owner), number_(number) {}

    ::torch::autograd::variable_list operator()(const ::torch::autograd::variable_list& outputs,
                                                const ::torch::autograd::variable_list& /*inputs*/) override {
      owner_.on_gradient(number_);
      return outputs;
    }

   private:
    Owner& owner_;
    std::size_t number_;
  };

  gradient_hook() = default;
  gradient_hook(const gradient_hook&) = delete;
  gradient_hook& operator=(const gradient_hook&) = delete;
  ~gradient_hook() { detach(); }

  /// Attaches the hook, unless the parameter has the accumulator that it is attached to. Does nothing while the
  /// parameter is frozen.
  template <class Owner>
  void attach(const at::Tensor& parameter, Owner& owner, std::size_t number) {
    if (!parameter.requires_grad() || (node_ != nullptr && accumulator(parameter) == node_)) {
      return;
    }
    detach();
    node_ = ::torch::autograd::impl::grad_accumulator(parameter);
    key_ = node_->add_post_hook(std::make_unique<function<Owner>>(owner, number));
  }

 private:
  // LibTorch has had two types of pointers to nodes.
  using node_pointer = decltype(::torch::autograd::impl::grad_accumulator(std::declval<const at::Tensor&>()));

  [[nodiscard]] static node_pointer accumulator(const at::Tensor& parameter) {
    return ::torch::autograd::impl::try_get_grad_accumulator(parameter);
  }
  void detach() {
    if (node_ != nullptr) {
      node_->del_post_hook(key_);
      node_ = nullptr;
    }
  }

  node_pointer node_{};  // the parameter does not keep it
  std::uintptr_t key_ = 0;
};

}  // namespace hfcomm::torch::detail
