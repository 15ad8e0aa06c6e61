// SPDX-License-Identifier: MIT
#pragma once

#include <torch/csrc/autograd/engine.h>
#include <torch/types.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <hfcomm/call/typed_calls.hpp>
#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/core/error.hpp>
#include <hfcomm/ddp/detail/connect_model.hpp>
#include <hfcomm/ddp/detail/model_shape.hpp>
#include <hfcomm/ddp/detail/registered_model.hpp>
#include <hfcomm/ddp/detail/share_model.hpp>
#include <hfcomm/ddp/distributed_data_parallel.hpp>
#include <hfcomm/torch/detail/gradient_hook.hpp>
#include <hfcomm/torch/detail/module_parts.hpp>
#include <hfcomm/torch/detail/sparse_gradients.hpp>
#include <hfcomm/torch/detail/streams-inl.hpp>
#include <hfcomm/torch/distributed_data_parallel.hpp>

namespace hfcomm::torch::detail {

/// Implementation of distributed_data_parallel_base, where its functions are documented. It leads LibTorch's backward
/// to the averager, and the averager's memory into `.grad`.
class module_state {
 public:
  module_state(const ::torch::nn::Module* module, data_parallel_options options, const process_group& group,
               std::source_location where)
      : group_(group),
        made_at_(where),
        where_(where),
        finishes_by_itself_(options.automatic_finish),
        shares_buffers_(options.ddp.broadcast_buffers),
        parts_(module != nullptr ? parts_of(*module, options.ddp.ignore) : module_parts()),
        problem_(module != nullptr ? "" : "the module is null, or its holder empty") {
    std::vector<ddp_parameter> parameters;
    std::vector<ddp_buffer> buffers;
    const auto on_device = use_device();
    if (!is_alone()) {
      problem_ = problem_.empty() ? parts_.problem() : problem_;
      choose_stream(options.ddp);
    }
    refuse_unusable_module();
    if (!is_alone()) {
      share_once(options.ddp);
      for (const model_tensor& one : parts_.dense) {
        parameters.push_back(parameter_of(one));
      }
      for (const model_tensor& one : parts_.buffers) {
        buffers.push_back(buffer_of(one));
      }
    }
    averager_.emplace(std::move(parameters), std::move(buffers), std::move(options.ddp), group, where);
    if (!is_alone()) {
      bound_.resize(parts_.dense.size());
      for (std::size_t number = 0; number < parts_.dense.size() + parts_.sparse.size(); ++number) {
        hooks_.push_back(std::make_unique<gradient_hook>());
      }
      attach_hooks();
    }
  }
  module_state(const module_state&) = delete;
  module_state& operator=(const module_state&) = delete;
  ~module_state() = default;

  /// Begins a pass, whose errors name `where`.
  void begin_forward(std::source_location where) {
    if (!at::GradMode::is_enabled()) {
      return;
    }
    where_ = where;
    if (is_alone()) {
      averager_->begin_forward(where_);
      if (finishes_by_itself_) {
        averager_->finish(where_);
      }
      return;
    }
    const auto on_device = use_device();
    std::string problem = follow_tensors();
    problem = problem.empty() ? stream_problem() : problem;
    has_queued_finish_ = false;
    has_begun_backward_ = false;
    begin_averager_pass();
    if (!problem.empty()) {
      refuse_pass(problem);
    }
    follow_memory();
  }
  /// Called by LibTorch in backward, when the gradient of a parameter is final: the dense ones count first.
  void on_gradient(std::size_t number) {
    begin_backward();
    if (finishes_by_itself_ && !has_queued_finish_) {
      ::torch::autograd::Engine::get_default_engine().queue_callback([this] {
        if (has_queued_finish_) {  // otherwise the pass was abandoned
          finish(where_);
        }
      });
      has_queued_finish_ = true;
    }
    if (number < bound_.size()) {
      on_dense_gradient(number);
    } else if (const model_tensor& one = parts_.sparse[number - bound_.size()];
               one.tensor().grad().defined() && !one.tensor().grad().is_sparse()) {
      refuse_pass(
          hfcomm::detail::concat({"the gradient of parameter \"", one.name(),
                                  "\" is dense, although it is the weight of a module with the option sparse"}));
    }
  }
  void finish(std::source_location where) {
    has_queued_finish_ = false;
    const auto on_device = use_device();
    begin_backward();  // unless a gradient has come
    has_begun_backward_ = false;
    averager_->finish(where);
    if (is_alone()) {
      return;
    }
    if (!averager_->synchronizes()) {
      clear_undefined();
      return;
    }
    for (const model_tensor& one : parts_.sparse) {
      one.tensor().mutable_grad() = average_sparse(one.tensor(), group_, where);
    }
    bind_gradients(where);
  }
  void abandon_pass(std::string_view why, std::source_location where) {
    has_queued_finish_ = false;
    has_begun_backward_ = false;
    averager_->abandon_pass(why, where);
  }
  void bind_gradients(std::source_location where) {
    for (std::size_t index = 0; index < bound_.size(); ++index) {
      if (averager_->used(index, where)) {
        bind_gradient(index);
      }
    }
  }

  [[nodiscard]] std::source_location made_at() const noexcept { return made_at_; }
  [[nodiscard]] hfcomm::distributed_data_parallel& averager() noexcept { return *averager_; }
  [[nodiscard]] const hfcomm::distributed_data_parallel& averager() const noexcept { return *averager_; }

 private:
  [[nodiscard]] bool is_alone() const noexcept { return group_.size() == 1; }

  /// Throws usage_error with the problem of this rank's module, and tells the other ranks, if there is one.
  void refuse_unusable_module() {
    namespace calls = hfcomm::detail;
    if (!problem_.empty()) {
      auto call = calls::object_call<std::vector<calls::model_part>>("distributed_data_parallel",
                                                                     engines::movement::to_all, -1, where_);
      calls::running_call running(group_, call);
      running.refuse(problem_);
    }
  }
  /// Compares the modules, and gives every rank rank 0's parameters that the averager does not know.
  void share_once(const hfcomm::ddp_options& options) {
    namespace calls = hfcomm::detail;
    std::vector<ddp_buffer> shared;
    for (const auto* group : {&parts_.sparse, &parts_.frozen}) {
      for (const model_tensor& one : *group) {
        shared.push_back(buffer_of(one));
      }
    }
    const calls::registered_model model({}, std::move(shared), {});
    calls::check_model_shape({}, model.buffers(), false, group_, where_);
    const auto ring = calls::connect_model(model, options, group_, where_);
    calls::share_model(model.buffers(), &ddp_buffer::bytes, 0, group_, group_, options, ring.get(), where_);
  }
  /// Begins the averager's pass, and lets autograd know which buffers it has changed.
  // Older graphs stay usable where a broadcast brings the bytes that a buffer has, as in a pass without a step in
  // between. Reading a buffer on a device would wait for the stream: there a broadcast counts as a change on all ranks
  // but rank 0.
  void begin_averager_pass() {
    std::vector<std::vector<std::byte>> before(parts_.buffers.size());
    for (std::size_t index = 0; shares_buffers_ && index < before.size(); ++index) {
      if (const model_tensor& one = parts_.buffers[index]; !one.is_on_device()) {
        before[index].assign(one.bytes().begin(), one.bytes().end());
      }
    }
    averager_->begin_forward(where_);
    for (std::size_t index = 0; shares_buffers_ && index < before.size(); ++index) {
      const model_tensor& one = parts_.buffers[index];
      const bool has_changed = one.is_on_device() ? group_.rank() != 0 && averager_->synchronizes()
                                                  : !std::ranges::equal(before[index], one.bytes());
      if (has_changed && !one.tensor().is_inference()) {
        one.tensor().unsafeGetTensorImpl()->bump_version();
      }
    }
  }
  /// Sets the stream on which gradients on a device are computed, unless it is given.
  void choose_stream(hfcomm::ddp_options& options) {
    const model_tensor* const any = parts_.on_device();
    if (any == nullptr) {
      return;
    }
    if (options.stream == stream_ref::legacy_default()) {
      const auto stream = stream_on(any->tensor().device());
      problem_ = !problem_.empty() || stream ? problem_ : unknown_stream_text(any->tensor().device());
      options.stream = stream.value_or(options.stream);
    }
    stream_ = options.stream;
  }
  /// Describes why the present pass cannot run on this thread's stream; empty: it can.
  [[nodiscard]] std::string stream_problem() const {
    if (!stream_) {
      return {};
    }
    const auto stream = stream_on(parts_.on_device()->tensor().device());
    return stream && *stream != *stream_ ? "this pass is on another stream than the one that distributed_data_parallel "
                                           "was made on, or that its options name"
                                         : "";
  }
  /// Makes the parameters' device the current one.
  [[nodiscard]] current_device_scope use_device() const {
    const model_tensor* const any = parts_.on_device();
    return current_device_scope(any != nullptr ? any->tensor().device() : at::Device(at::kCPU));
  }
  void attach_hooks() {
    std::size_t number = 0;
    for (const auto* group : {&parts_.dense, &parts_.sparse}) {
      for (const model_tensor& one : *group) {
        hooks_[number]->attach(one.tensor(), *this, number);
        ++number;
      }
    }
  }
  /// Follows tensors that have moved. Describes the first one that cannot be followed; empty: there is none.
  [[nodiscard]] std::string follow_tensors() {
    std::string problem = follow(parts_.dense, false, &hfcomm::distributed_data_parallel::rebind_value);
    const auto then = [&](std::vector<model_tensor>& group, bool are_frozen, auto rebind) {
      if (problem.empty()) {
        problem = follow(group, are_frozen, rebind);
      }
    };
    then(parts_.buffers, false, &hfcomm::distributed_data_parallel::rebind_buffer);
    then(parts_.sparse, false, nullptr);
    then(parts_.frozen, true, nullptr);
    attach_hooks();
    return problem;
  }
  [[nodiscard]] std::string follow(std::vector<model_tensor>& group, bool are_frozen,
                                   void (hfcomm::distributed_data_parallel::*rebind)(std::size_t, std::span<std::byte>,
                                                                                     std::source_location)) {
    for (std::size_t index = 0; index < group.size(); ++index) {
      model_tensor& one = group[index];
      if (std::string change = one.change(); !change.empty()) {
        return hfcomm::detail::concat({change, ": make distributed_data_parallel anew"});
      }
      if (are_frozen && one.tensor().requires_grad()) {
        return hfcomm::detail::concat(
            {"parameter \"", one.name(), "\" was frozen, and is not any more: make distributed_data_parallel anew"});
      }
      if (one.has_moved()) {
        one.bind();
        if (rebind != nullptr) {
          ((*averager_).*rebind)(index, one.bytes(), where_);
        }
      }
    }
    return {};
  }
  /// Moves `.grad` with the averager's memory.
  void follow_memory() {
    for (std::size_t index = 0; index < bound_.size(); ++index) {
      const at::Tensor& gradient = parts_.dense[index].tensor().grad();
      if (gradient.defined() && gradient.layout() == at::kStrided && gradient.data_ptr() == bound_[index]) {
        bind_gradient(index);
      }
    }
  }
  /// Clears the memory of undefined gradients. A join scope may average what accumulated, and takes all of it.
  void clear_undefined() {
    const at::NoGradGuard no_grad;
    for (std::size_t index = 0; index < bound_.size(); ++index) {
      if (!parts_.dense[index].tensor().grad().defined()) {
        gradient_view(index).zero_();
      }
    }
  }
  /// Called before a bucket of the pass can be reduced: what accumulated in `no_sync`, and was dropped since, does not
  /// count.
  void begin_backward() {
    if (!has_begun_backward_ && averager_->synchronizes()) {
      clear_undefined();
    }
    has_begun_backward_ = true;
  }
  void on_dense_gradient(std::size_t index) {
    const model_tensor& one = parts_.dense[index];
    const at::Tensor gradient = one.tensor().grad();
    if (one.tensor().numel() == 0) {
      averager_->mark_ready(index, where_);
      return;
    }
    if (gradient.defined() && gradient.layout() != at::kStrided) {
      refuse_pass(hfcomm::detail::concat(
          {"the gradient of parameter \"", one.name(),
           "\" is sparse; only those of torch::nn::Embedding and EmbeddingBag with the option sparse may be"}));
    }
    const at::NoGradGuard no_grad;
    // The bytes of a lazy conjugate or negative are not those of its elements.
    if (gradient.defined() && gradient.strides() == one.tensor().strides() && !gradient.is_conj() &&
        !gradient.is_neg()) {
      averager_->mark_ready(index, std::span(static_cast<const std::byte*>(gradient.data_ptr()), gradient.nbytes()),
                            where_);
    } else {
      gradient.defined() ? gradient_view(index).copy_(gradient) : gradient_view(index).zero_();
      averager_->mark_ready(index, where_);
    }
    bind_gradient(index);
  }
  /// Returns the averager's memory as a tensor like the parameter.
  [[nodiscard]] at::Tensor gradient_view(std::size_t index) {
    const at::Tensor& parameter = parts_.dense[index].tensor();
    return at::from_blob(
        gradient_address(index), parameter.sizes(), parameter.strides(),
        [memory = averager_->gradient_memory(index, where_)](void* /*address*/) mutable { memory.reset(); },
        parameter.options().requires_grad(false), parameter.device());
  }
  [[nodiscard]] void* gradient_address(std::size_t index) { return averager_->gradient(index, where_).data(); }
  void bind_gradient(std::size_t index) {
    const at::Tensor& parameter = parts_.dense[index].tensor();
    void* const address = gradient_address(index);
    at::Tensor& gradient = parameter.mutable_grad();
    if (parameter.numel() != 0 && (!gradient.defined() || gradient.data_ptr() != address)) {
      gradient = gradient_view(index);
    }
    bound_[index] = address;
  }
  [[noreturn]] void refuse_pass(const std::string& text) {
    abandon_pass(text, where_);
    hfcomm::detail::throw_error<usage_error>({group_.rank(), group_.size(), "distributed_data_parallel", 0, where_},
                                             {text});
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
