// SPDX-License-Identifier: MIT
#pragma once

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <hfcomm/call/typed_calls.hpp>
#include <hfcomm/core/error.hpp>
#include <hfcomm/ddp/detail/connect_model.hpp>
#include <hfcomm/ddp/detail/model_shape.hpp>
#include <hfcomm/ddp/detail/registered_model.hpp>
#include <hfcomm/ddp/detail/share_model.hpp>
#include <hfcomm/ddp/distributed_data_parallel.hpp>
#include <hfcomm/torch/detail/module_parts.hpp>
#include <hfcomm/torch/detail/sparse_gradients.hpp>
#include <hfcomm/torch/detail/streams.hpp>
#include <hfcomm/torch/distributed_data_parallel.hpp>

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

/// Implementation of distributed_data_parallel_base, where its functions are documented. It leads LibTorch's backward
/// to the averager, and the averager's memory into `.grad`.
class module_state {
 public:
  module_state(const ::torch::nn::Module* module, data_parallel_options options, const process_group& group,
               std::source_location where);
  module_state(const module_state&) = delete;
  module_state& operator=(const module_state&) = delete;
  ~module_state() = default;

  /// Begins a pass, whose errors name `where`.
  void begin_forward(std::source_location where);
  /// Called by LibTorch in backward, when the gradient of a parameter is final: the dense ones count first.
  void on_gradient(std::size_t number);
  void finish(std::source_location where);
  void abandon_pass(std::string_view why, std::source_location where);
  void bind_gradients(std::source_location where);

  [[nodiscard]] std::source_location made_at() const noexcept { return made_at_; }
  [[nodiscard]] hfcomm::distributed_data_parallel& averager() noexcept { return *averager_; }
  [[nodiscard]] const hfcomm::distributed_data_parallel& averager() const noexcept { return *averager_; }

 private:
  [[nodiscard]] bool is_alone() const noexcept { return group_.size() == 1; }

  /// Throws usage_error with the problem of this rank's module, and tells the other ranks, if there is one.
  void refuse_unusable_module();
  void share_once(const hfcomm::ddp_options& options);
  /// Begins the averager's pass, and lets autograd know which buffers it has changed.
  void begin_averager_pass();
  /// Sets the stream on which gradients on a device are computed, unless it is given.
  void choose_stream(hfcomm::ddp_options& options);
  /// Describes why the present pass cannot run on this thread's stream; empty: it can.
  [[nodiscard]] std::string stream_problem() const;
  /// Makes the parameters' device the current one.
  [[nodiscard]] current_device_scope use_device() const;
  void attach_hooks();
  /// Follows tensors that have moved. Describes the first one that cannot be followed; empty: there is none.
  [[nodiscard]] std::string follow_tensors();
  [[nodiscard]] std::string follow(std::vector<model_tensor>& group, bool are_frozen,
                                   void (hfcomm::distributed_data_parallel::*rebind)(std::size_t, std::span<std::byte>,
                                                                                     std::source_location));
  /// Moves `.grad` with the averager's memory.
  void follow_memory();
  /// Clears the memory of undefined gradients. A join scope may average what accumulated, and takes all of it.
  void clear_undefined();
  /// Called before a bucket of the pass can be reduced: what accumulated in `no_sync`, and was dropped since, does not
  /// count.
  void begin_backward();
  void on_dense_gradient(std::size_t index);
  void finish_after_backward();
  /// Returns the averager's memory as a tensor like the parameter.
  [[nodiscard]] at::Tensor gradient_view(std::size_t index);
  [[nodiscard]] void* gradient_address(std::size_t index) { return averager_->gradient(index, where_).data(); }
  void bind_gradient(std::size_t index);
  [[noreturn]] void refuse_pass(const std::string& text);
  [[nodiscard]] error_context context() const {
    return {group_.rank(), group_.size(), "distributed_data_parallel", 0, where_};
  }

  process_group group_;
  std::source_location made_at_;
  std::source_location
      where_;  // of the present pass's forward, which errors in backward name; first of the constructor
  bool finishes_by_itself_;
  bool shares_buffers_;
  module_parts parts_;
  std::string problem_;                                        // of this rank's module; empty: none
  std::optional<stream_ref> stream_;                           // of the passes, where parameters are on a device
  std::optional<hfcomm::distributed_data_parallel> averager_;  // its parameters are `parts_.dense`
  std::vector<void*> bound_;                                   // the memory of each `.grad` that this has set
  bool has_queued_finish_ = false;                             // in the present backward pass
  bool has_begun_backward_ = false;                            // of the present pass
  std::vector<std::unique_ptr<gradient_hook>> hooks_;          // the last member: they call this object
};

}  // namespace hfcomm::torch::detail
