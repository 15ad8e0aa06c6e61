// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <optional>

#include <hfcomm/core/config.hpp>
#include <hfcomm/group/process_group.hpp>

namespace hfcomm::rendezvous {
struct membership;
}

namespace hfcomm::detail {

/// The numbers of a rank. Those of a job of one are the defaults.
struct rank_numbers {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;
  int local_size = 1;
  int node = 0;
  int nodes = 1;
  bool initialized = false;
};

/// A rank, which is this process or, where ranks are threads, this thread. Before init() and after the session it is a
/// job of one.
struct identity {
  process_group world;
  process_group local = world;
  std::optional<process_group> leaders = world;
  rank_numbers numbers{};
};

/// Returns the identity of a rank that has joined its job. The deadline of its groups is `timeout`.
[[gnu::cold]] identity identity_of(rendezvous::membership joined, std::chrono::nanoseconds timeout);

HFCOMM_PROCESS_STATE identity& process_identity();

/// Returns the identity of the rank that this thread runs for; null where it is the process's.
HFCOMM_PROCESS_STATE identity*& thread_identity() noexcept;

const identity& current_identity();

/// Makes this thread run for a rank, for this object's lifetime. Where ranks are threads, every thread that runs for
/// one has its identity.
class identity_scope {
 public:
  explicit identity_scope(identity* own) noexcept;
  identity_scope(const identity_scope&) = delete;
  identity_scope& operator=(const identity_scope&) = delete;
  ~identity_scope();

 private:
  identity* previous_;
};

}  // namespace hfcomm::detail
