// SPDX-License-Identifier: MIT
#pragma once

#include <torch/nn/module.h>

#include <hfcomm/core/config.hpp>
#include <hfcomm/torch/detail/module_state.hpp>
#include <hfcomm/torch/distributed_data_parallel.hpp>

namespace hfcomm::torch {

HFCOMM_INLINE distributed_data_parallel_base::distributed_data_parallel_base(const ::torch::nn::Module* module,
                                                                             data_parallel_options options,
                                                                             const process_group& group,
                                                                             std::source_location where)
    : state_(std::make_unique<detail::module_state>(module, std::move(options), group, where)) {}

HFCOMM_INLINE distributed_data_parallel_base::~distributed_data_parallel_base() = default;

HFCOMM_INLINE void distributed_data_parallel_base::begin_forward(std::source_location where) {
  state_->begin_forward(where);
}

HFCOMM_INLINE void distributed_data_parallel_base::begin_forward() { state_->begin_forward(state_->made_at()); }

HFCOMM_INLINE void distributed_data_parallel_base::finish(std::source_location where) { state_->finish(where); }

HFCOMM_INLINE void distributed_data_parallel_base::abandon_pass(std::string_view why, std::source_location where) {
  state_->abandon_pass(why, where);
}

HFCOMM_INLINE hfcomm::distributed_data_parallel::no_sync_scope distributed_data_parallel_base::no_sync(
    bool is_active) noexcept {
  return state_->averager().no_sync(is_active);
}

HFCOMM_INLINE bool distributed_data_parallel_base::synchronizes() const noexcept {
  return state_->averager().synchronizes();
}

HFCOMM_INLINE void distributed_data_parallel_base::bind_gradients(std::source_location where) {
  state_->bind_gradients(where);
}

HFCOMM_INLINE const ddp_pass_record& distributed_data_parallel_base::last_pass() const noexcept {
  return state_->averager().last_pass();
}

HFCOMM_INLINE const process_group& distributed_data_parallel_base::group() const noexcept {
  return state_->averager().group();
}

HFCOMM_INLINE hfcomm::distributed_data_parallel& distributed_data_parallel_base::averager() noexcept {
  return state_->averager();
}

}  // namespace hfcomm::torch
