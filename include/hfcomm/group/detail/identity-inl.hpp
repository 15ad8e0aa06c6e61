// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <optional>
#include <utility>

#include <hfcomm/core/config.hpp>
#include <hfcomm/group/detail/identity.hpp>
#include <hfcomm/group/detail/missing_session-inl.hpp>
#include <hfcomm/group/session.hpp>

namespace hfcomm {

namespace detail {

/// The identity of the process; null before its first use.
HFCOMM_PROCESS_STATE HFCOMM_INLINE std::atomic<identity*>& made_identity() noexcept {
  static std::atomic<identity*> made{nullptr};
  return made;
}

HFCOMM_INLINE identity& process_identity() {
  // Never destroyed: a session may be a global, which is destroyed after all that was made during main.
  static identity& process = *[] {
    auto* const made = new identity;  // NOLINT(*owning-memory*)
    made_identity().store(made);
    return made;
  }();
  return process;
}

HFCOMM_INLINE identity*& thread_identity() noexcept {
  thread_local identity* own = nullptr;
  return own;
}

HFCOMM_INLINE const identity& current_identity() {
  const identity* own = thread_identity();
  return own != nullptr ? *own : process_identity();
}

/// Returns the identity for a call. Where a launcher has started several processes and this one has no session, that is
/// noted or thrown.
HFCOMM_INLINE const identity& identity_for_call() {
  const identity& own = current_identity();
  if (!own.numbers.initialized) [[unlikely]] {
    require_session();
  }
  return own;
}

/// Returns the numbers of the rank. A program that only asks for its rank has no code for groups: before its first use,
/// the process's identity is that of a job of one.
HFCOMM_INLINE rank_numbers current_numbers() noexcept {
  const identity* own = thread_identity();
  own = own != nullptr ? own : made_identity().load();
  return own != nullptr ? own->numbers : rank_numbers{};
}

/// Returns the numbers for a program that asks. Where a launcher has started several processes and this one has no
/// session, that is noted.
HFCOMM_INLINE rank_numbers numbers_for_call() noexcept {
  const rank_numbers own = current_numbers();
  if (!own.initialized) [[unlikely]] {
    note_missing_session();
  }
  return own;
}

HFCOMM_INLINE identity_scope::identity_scope(identity* own) noexcept
    : previous_(std::exchange(thread_identity(), own)) {}
HFCOMM_INLINE identity_scope::~identity_scope() { thread_identity() = previous_; }

}  // namespace detail

HFCOMM_INLINE const process_group& world() { return detail::identity_for_call().world; }
HFCOMM_INLINE const process_group& local_group() { return detail::identity_for_call().local; }
HFCOMM_INLINE const std::optional<process_group>& leader_group() { return detail::identity_for_call().leaders; }

HFCOMM_INLINE int rank() { return detail::numbers_for_call().rank; }
HFCOMM_INLINE int world_size() { return detail::numbers_for_call().world_size; }
HFCOMM_INLINE int local_rank() { return detail::numbers_for_call().local_rank; }
HFCOMM_INLINE int local_size() { return detail::numbers_for_call().local_size; }
HFCOMM_INLINE int node_rank() { return detail::numbers_for_call().node; }
HFCOMM_INLINE int node_count() { return detail::numbers_for_call().nodes; }
HFCOMM_INLINE bool is_initialized() { return detail::current_numbers().initialized; }

}  // namespace hfcomm
