// SPDX-License-Identifier: MIT
#pragma once

#include <exception>
#include <memory>
#include <utility>

#include <hfcomm/core/config.hpp>
#include <hfcomm/device/detail/device_call.hpp>
#include <hfcomm/device/detail/watched_operations.hpp>
#include <hfcomm/device/nccl_group_scope.hpp>
#include <hfcomm/group/detail/deferred_errors.hpp>
#include <hfcomm/group/detail/group_state.hpp>

namespace hfcomm {

namespace detail {

/// Adds a call to the watched operations of a group, and marks it as over when the scope ends. Does nothing where the
/// group has no device_watch.
class watched_call {
 public:
  watched_call(const group_state& state, const operation& call) {
    if (auto* const watched = state.watched.load(std::memory_order_acquire); watched != nullptr) {
      added_ = watched->add(nullptr, call, state.devices->sequence());
    }
  }
  watched_call(const watched_call&) = delete;
  watched_call& operator=(const watched_call&) = delete;
  ~watched_call() {
    if (added_) {
      added_->is_over.store(true);
    }
  }

 private:
  std::shared_ptr<watched_operation> added_;
};

}  // namespace detail

HFCOMM_INLINE nccl_group_scope::nccl_group_scope(const process_group& group, std::source_location where)
    : group_(group), call_{.name = "nccl_group_scope", .where = where} {
  detail::connect_device_once(group_, where);
  const detail::group_guard guard(group_, call_);
  auto& engine = *detail::group_access::state(group_).devices;
  call_.timeout = group_.timeout();
  if (engine.is_in_batch()) {
    detail::throw_error<usage_error>(
        {group_.rank(), group_.size(), call_.name.text, 0, where},
        {"this thread has an nccl_group_scope already; it takes the operations of all groups"});
  }
  engine.begin_batch(call_);
  is_open_ = true;
}

HFCOMM_INLINE nccl_group_scope::~nccl_group_scope() {
  try {
    end();
  } catch (...) {
    detail::defer(group_, std::current_exception());
  }
}

HFCOMM_INLINE void nccl_group_scope::end() {
  if (std::exchange(is_open_, false)) {
    auto& state = detail::group_access::state(group_);
    const detail::watched_call watched(state, call_);  // NCCL may wait in it for ranks that it has not connected before
    state.devices->end_batch(call_);
  }
}

}  // namespace hfcomm
