// SPDX-License-Identifier: MIT
#pragma once

#include <utility>

#include <hfcomm/core/config.hpp>
#include <hfcomm/ddp/detail/ddp_state.hpp>
#include <hfcomm/ddp/distributed_data_parallel.hpp>

namespace hfcomm {

HFCOMM_INLINE distributed_data_parallel::distributed_data_parallel(std::vector<ddp_parameter> parameters,
                                                                   std::vector<ddp_buffer> buffers, ddp_options options,
                                                                   const process_group& group,
                                                                   std::source_location where)
    : state_(std::make_unique<detail::ddp_state>(std::move(parameters), std::move(buffers), std::move(options), group,
                                                 where)) {}

HFCOMM_INLINE distributed_data_parallel::~distributed_data_parallel() = default;

HFCOMM_INLINE void distributed_data_parallel::begin_forward(std::source_location where) {
  state_->begin_forward(where);
}

HFCOMM_INLINE void distributed_data_parallel::mark_ready(std::size_t index, std::source_location where) {
  state_->mark_ready(index, nullptr, where);
}

HFCOMM_INLINE void distributed_data_parallel::mark_ready(std::string_view name, std::source_location where) {
  state_->mark_ready(name, where);
}

HFCOMM_INLINE void distributed_data_parallel::mark_ready(std::size_t index, std::span<const std::byte> source,
                                                         std::source_location where) {
  state_->mark_ready(index, &source, where);
}

HFCOMM_INLINE std::span<std::byte> distributed_data_parallel::gradient(std::size_t index, std::source_location where) {
  return state_->gradient(index, where);
}

HFCOMM_INLINE std::span<std::byte> distributed_data_parallel::typed_gradient(std::size_t index, element_type type,
                                                                             std::source_location where) {
  return state_->gradient(index, type, where);
}

HFCOMM_INLINE std::shared_ptr<void> distributed_data_parallel::gradient_memory(std::size_t index,
                                                                               std::source_location where) const {
  return state_->gradient_memory(index, where);
}

HFCOMM_INLINE bool distributed_data_parallel::used(std::size_t index, std::source_location where) const {
  return state_->used(index, where);
}

HFCOMM_INLINE void distributed_data_parallel::rebind_value(std::size_t index, std::span<std::byte> value,
                                                           std::source_location where) {
  state_->rebind_value(index, value, where);
}

HFCOMM_INLINE void distributed_data_parallel::rebind_buffer(std::size_t index, std::span<std::byte> bytes,
                                                            std::source_location where) {
  state_->rebind_buffer(index, bytes, where);
}

HFCOMM_INLINE const ddp_pass_record& distributed_data_parallel::last_pass() const noexcept {
  return state_->last_pass();
}

HFCOMM_INLINE void distributed_data_parallel::finish(std::source_location where) { state_->finish(where); }

HFCOMM_INLINE void distributed_data_parallel::abandon_pass(std::string_view why, std::source_location where) {
  state_->abandon_pass(why, where);
}

HFCOMM_INLINE distributed_data_parallel::no_sync_scope::no_sync_scope(distributed_data_parallel& ddp,
                                                                      bool is_active) noexcept
    : ddp_(is_active ? &ddp : nullptr) {
  if (is_active) {
    ddp.state_->enter_no_sync();
  }
}

HFCOMM_INLINE distributed_data_parallel::no_sync_scope::~no_sync_scope() {
  if (ddp_ != nullptr) {
    ddp_->state_->leave_no_sync();
  }
}

HFCOMM_INLINE bool distributed_data_parallel::synchronizes() const noexcept { return state_->synchronizes(); }

HFCOMM_INLINE std::uint64_t distributed_data_parallel::finished_passes() const noexcept {
  return state_->finished_passes();
}

HFCOMM_INLINE std::size_t distributed_data_parallel::bucket_count() const noexcept { return state_->bucket_count(); }

HFCOMM_INLINE const process_group& distributed_data_parallel::group() const noexcept { return state_->group(); }

HFCOMM_INLINE const process_group& distributed_data_parallel::device_group(std::source_location where) const {
  return state_->device_group(where);
}

}  // namespace hfcomm
