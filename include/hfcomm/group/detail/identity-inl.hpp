// SPDX-License-Identifier: MIT
#pragma once

#include <utility>

#include <hfcomm/core/config.hpp>
#include <hfcomm/group/detail/identity.hpp>
#include <hfcomm/group/session.hpp>

namespace hfcomm {

namespace detail {

HFCOMM_INLINE identity& process_identity() {
  // Never destroyed: a session may be a global, which is destroyed after all that was made during main.
  static identity& process = *new identity;  // NOLINT(*owning-memory*)
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

HFCOMM_INLINE identity_scope::identity_scope(identity* own) noexcept
    : previous_(std::exchange(thread_identity(), own)) {}
HFCOMM_INLINE identity_scope::~identity_scope() { thread_identity() = previous_; }

}  // namespace detail

HFCOMM_INLINE const process_group& world() { return detail::current_identity().world; }
HFCOMM_INLINE const process_group& local_group() { return detail::current_identity().local; }
HFCOMM_INLINE const std::optional<process_group>& leader_group() { return detail::current_identity().leaders; }

HFCOMM_INLINE int rank() { return world().rank(); }
HFCOMM_INLINE int world_size() { return world().size(); }
HFCOMM_INLINE int local_rank() { return local_group().rank(); }
HFCOMM_INLINE int local_size() { return local_group().size(); }
HFCOMM_INLINE int node_rank() { return detail::current_identity().node; }
HFCOMM_INLINE int node_count() { return detail::current_identity().nodes; }
HFCOMM_INLINE bool is_initialized() { return detail::current_identity().initialized; }

}  // namespace hfcomm
