// SPDX-License-Identifier: MIT
#pragma once

#include <torch/types.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <hfcomm/core/config.hpp>
#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/torch/detail/module_state.hpp>

namespace hfcomm::torch::detail {

HFCOMM_INLINE module_state::module_state(const ::torch::nn::Module* module, data_parallel_options options,
                                         const process_group& group, std::source_location where)
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

HFCOMM_INLINE current_device_scope module_state::use_device() const {
  const model_tensor* const any = parts_.on_device();
  return current_device_scope(any != nullptr ? any->tensor().device() : at::Device(at::kCPU));
}

HFCOMM_INLINE void module_state::choose_stream(hfcomm::ddp_options& options) {
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

HFCOMM_INLINE std::string module_state::stream_problem() const {
  if (!stream_) {
    return {};
  }
  const auto stream = stream_on(parts_.on_device()->tensor().device());
  return stream && *stream != *stream_ ? "this pass is on another stream than the one that distributed_data_parallel "
                                         "was made on, or that its options name"
                                       : "";
}

HFCOMM_INLINE void module_state::refuse_unusable_module() {
  namespace calls = hfcomm::detail;
  if (!problem_.empty()) {
    auto call = calls::object_call<std::vector<calls::model_part>>("distributed_data_parallel",
                                                                   engines::movement::to_all, -1, where_);
    calls::running_call running(group_, call);
    running.refuse(problem_);
  }
}

/// Compares the modules, and gives every rank rank 0's parameters that the averager does not know.
HFCOMM_INLINE void module_state::share_once(const hfcomm::ddp_options& options) {
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

HFCOMM_INLINE void module_state::attach_hooks() {
  std::size_t number = 0;
  for (const auto* group : {&parts_.dense, &parts_.sparse}) {
    for (const model_tensor& one : *group) {
      hooks_[number]->attach(one.tensor(), *this, number);
      ++number;
    }
  }
}

HFCOMM_INLINE std::string module_state::follow(
    std::vector<model_tensor>& group, bool are_frozen,
    void (hfcomm::distributed_data_parallel::*rebind)(std::size_t, std::span<std::byte>, std::source_location)) {
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

HFCOMM_INLINE std::string module_state::follow_tensors() {
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

HFCOMM_INLINE void module_state::begin_forward(std::source_location where) {
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

// Older graphs stay usable where a broadcast brings the bytes that a buffer has, as in a pass without a step in
// between. Reading a buffer on a device would wait for the stream: there a broadcast counts as a change on all ranks
// but rank 0.
HFCOMM_INLINE void module_state::begin_averager_pass() {
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

HFCOMM_INLINE void module_state::refuse_pass(const std::string& text) {
  abandon_pass(text, where_);
  hfcomm::detail::throw_error<usage_error>(context(), {text});
}

HFCOMM_INLINE void module_state::abandon_pass(std::string_view why, std::source_location where) {
  has_queued_finish_ = false;
  has_begun_backward_ = false;
  averager_->abandon_pass(why, where);
}

HFCOMM_INLINE at::Tensor module_state::gradient_view(std::size_t index) {
  const at::Tensor& parameter = parts_.dense[index].tensor();
  return at::from_blob(
      gradient_address(index), parameter.sizes(), parameter.strides(),
      [memory = averager_->gradient_memory(index, where_)](void* /*address*/) mutable { memory.reset(); },
      parameter.options().requires_grad(false), parameter.device());
}

HFCOMM_INLINE void module_state::bind_gradient(std::size_t index) {
  const at::Tensor& parameter = parts_.dense[index].tensor();
  void* const address = gradient_address(index);
  at::Tensor& gradient = parameter.mutable_grad();
  if (parameter.numel() != 0 && (!gradient.defined() || gradient.data_ptr() != address)) {
    gradient = gradient_view(index);
  }
  bound_[index] = address;
}

HFCOMM_INLINE void module_state::bind_gradients(std::source_location where) {
  for (std::size_t index = 0; index < bound_.size(); ++index) {
    if (averager_->used(index, where)) {
      bind_gradient(index);
    }
  }
}

HFCOMM_INLINE void module_state::follow_memory() {
  for (std::size_t index = 0; index < bound_.size(); ++index) {
    const at::Tensor& gradient = parts_.dense[index].tensor().grad();
    if (gradient.defined() && gradient.layout() == at::kStrided && gradient.data_ptr() == bound_[index]) {
      bind_gradient(index);
    }
  }
}

HFCOMM_INLINE void module_state::clear_undefined() {
  const at::NoGradGuard no_grad;
  for (std::size_t index = 0; index < bound_.size(); ++index) {
    if (!parts_.dense[index].tensor().grad().defined()) {
      gradient_view(index).zero_();
    }
  }
}

HFCOMM_INLINE void module_state::begin_backward() {
  if (!has_begun_backward_ && averager_->synchronizes()) {
    clear_undefined();
  }
  has_begun_backward_ = true;
}

HFCOMM_INLINE void module_state::on_gradient(std::size_t number) {
  begin_backward();
  if (finishes_by_itself_ && !has_queued_finish_) {
    ::torch::autograd::Engine::get_default_engine().queue_callback([this] { finish_after_backward(); });
    has_queued_finish_ = true;
  }
  if (number < bound_.size()) {
    on_dense_gradient(number);
  } else if (const model_tensor& one = parts_.sparse[number - bound_.size()];
             one.tensor().grad().defined() && !one.tensor().grad().is_sparse()) {
    refuse_pass(hfcomm::detail::concat({"the gradient of parameter \"", one.name(),
                                        "\" is dense, although it is the weight of a module with the option sparse"}));
  }
}

HFCOMM_INLINE void module_state::on_dense_gradient(std::size_t index) {
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
  if (gradient.defined() && gradient.strides() == one.tensor().strides() && !gradient.is_conj() && !gradient.is_neg()) {
    averager_->mark_ready(index, std::span(static_cast<const std::byte*>(gradient.data_ptr()), gradient.nbytes()),
                          where_);
  } else {
    gradient.defined() ? gradient_view(index).copy_(gradient) : gradient_view(index).zero_();
    averager_->mark_ready(index, where_);
  }
  bind_gradient(index);
}

HFCOMM_INLINE void module_state::finish_after_backward() {
  if (has_queued_finish_) {  // otherwise the pass was abandoned
    finish(where_);
  }
}

HFCOMM_INLINE void module_state::finish(std::source_location where) {
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

}  // namespace hfcomm::torch::detail
