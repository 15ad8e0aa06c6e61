// SPDX-License-Identifier: MIT
#pragma once

#include <exception>
#include <utility>

#include <hfcomm/core/config.hpp>
#include <hfcomm/device/detail/device_call.hpp>
#include <hfcomm/device/detail/device_notes.hpp>
#include <hfcomm/device/nccl_group_scope.hpp>
#include <hfcomm/group/detail/deferred_errors.hpp>
#include <hfcomm/group/detail/group_state.hpp>

namespace hfcomm {

namespace detail {

/// Marks a note as over when the scope ends, if there is a note.
struct over_at_the_end {
  device_note* note;
  ~over_at_the_end() {
    if (note != nullptr) {
      note->over.store(true);
    }
  }
};

}  // namespace detail

HFCOMM_INLINE nccl_group_scope::nccl_group_scope(const process_group& group, std::source_location where)
    : group_(group), call_{.name = "nccl_group_scope", .where = where} {
  detail::connect_device_once(group_, where);
  const detail::group_guard guard(group_, call_);
  auto& engine = *detail::group_access::state(group_).devices;
  call_.timeout = group_.timeout();
  if (engine.in_batch()) {
    throw usage_error({group_.rank(), group_.size(), call_.name.text, 0, where},
                      "this thread has an nccl_group_scope already; it takes the operations of all groups");
  }
  engine.begin_batch(call_);
  open_ = true;
}

HFCOMM_INLINE nccl_group_scope::~nccl_group_scope() {
  try {
    end();
  } catch (...) {
    detail::defer(group_, std::current_exception());
  }
}

HFCOMM_INLINE void nccl_group_scope::end() {
  if (std::exchange(open_, false)) {
    auto& engine = *detail::group_access::state(group_).devices;
    // NCCL may wait for other ranks in it, where it has not connected them before.
    const auto note = engine.watched() != nullptr ? engine.watched()->add(nullptr, call_, engine.sequence()) : nullptr;
    const detail::over_at_the_end mark{note.get()};
    engine.end_batch(call_);
  }
}

}  // namespace hfcomm
