// SPDX-License-Identifier: MIT
#pragma once

#include <utility>

#include <hfcomm/core/config.hpp>
#include <hfcomm/engine/call_text.hpp>
#include <hfcomm/engine/group_health.hpp>
#include <hfcomm/engine/receiver.hpp>
#include <hfcomm/group/detail/group_state.hpp>
#include <hfcomm/group/detail/running_call.hpp>

namespace hfcomm::detail {

/// Returns the group whose asynchronous operation this thread runs; null where it runs none. That operation may use the
/// group.
HFCOMM_PROCESS_STATE HFCOMM_INLINE const group_state*& group_being_served() noexcept {
  thread_local const group_state* served = nullptr;
  return served;
}

/// Makes this thread the one that runs an asynchronous operation of `group`, for this object's lifetime.
class served_group {
 public:
  explicit served_group(const group_state& group) : previous_(std::exchange(group_being_served(), &group)) {}
  served_group(const served_group&) = delete;
  served_group& operator=(const served_group&) = delete;
  ~served_group() { group_being_served() = previous_; }

 private:
  const group_state* previous_;
};

HFCOMM_INLINE group_guard::group_guard(const process_group& group, const operation& call)
    : state_(group_access::state(group)), served_(group_being_served() == &state_) {
  if (served_) {
    if (state_.served_busy) {
      throw_error<usage_error>(context_of(group, call),
                               {"called inside an operation of this group, by a callable or an object of it"});
    }
    state_.served_busy = true;
    return;
  }
  if (state_.busy.exchange(true, std::memory_order_acquire)) {
    throw_error<usage_error>(
        context_of(group, call),
        {"another thread is inside an operation of this group; give each thread a group of its own (split)"});
  }
  if (state_.master_sections.load(std::memory_order_relaxed) != 0) [[unlikely]] {
    state_.busy.store(false, std::memory_order_release);
    throw_error<usage_error>(context_of(group, call), {"called inside a master-first section or run_master_only: the "
                                                       "other ranks wait for its end and cannot answer"});
  }
}

HFCOMM_INLINE group_guard::~group_guard() {
  if (served_) {
    state_.served_busy = false;
  } else {
    state_.busy.store(false, std::memory_order_release);
  }
}

HFCOMM_INLINE void group_guard::drain() {
  if (!served_ && state_.queue) [[unlikely]] {
    state_.queue->drain();
  }
}

HFCOMM_INLINE running_call::running_call(const process_group& group, operation& call, bool* has_entered)
    : checked_call(group, call), state_(group_access::state(group)), guard_(group, call), engine_(state_.engine()) {
  guard_.drain();
  if (has_entered != nullptr) {
    *has_entered = true;
  }
  call_.timeout = group.timeout();
  if (group.tag() != 0 && call_.tag == 0) {
    call_.tag = group.tag();
  }
  number_ = engine_.sequence() + 1;
  if (state_.has_deferred.load(std::memory_order_relaxed)) [[unlikely]] {
    throw_deferred();
  }
}

HFCOMM_INLINE running_call::~running_call() {
  if (!begun_) {
    announce_failure("an exception ended its call before the operation began");
  }
  if (state_.devices && engine_.health().is_broken()) [[unlikely]] {
    state_.devices->abort();  // its kernels wait for ranks that will not come
  }
  state_.trim_scratch();
}

HFCOMM_INLINE void running_call::allow_early_leave() noexcept { call_.leaves_early = group_.leaves_early(); }

HFCOMM_INLINE void running_call::exchange_nothing() {
  engines::no_receiver nothing;
  engine().exchange(call_, {}, nothing);
}

HFCOMM_INLINE std::vector<std::byte>& running_call::scratch() noexcept { return state_.scratch; }
HFCOMM_INLINE shared_bytes& running_call::objects() { return state_.objects(); }

HFCOMM_INLINE void running_call::announce_failure(const std::string& text) noexcept {
  try {
    engine().announce(call_, &text);
  } catch (...) {
    // The group has a worse problem, which its next operation reports; the caller's own error comes first.
  }
}

}  // namespace hfcomm::detail
