// SPDX-License-Identifier: MIT
#pragma once

#include <optional>

#include <hfcomm/group/process_group.hpp>

namespace hfcomm::detail {

/// The groups of a rank: of this process or, among ranks as threads, of this thread. Before init() and after the
/// session it is a job of one.
struct identity {
  process_group world;
  process_group local = world;
  std::optional<process_group> leaders = world;
  int node = 0;
  int nodes = 1;
  bool initialized = false;
};

identity& process_identity();

/// The identity of the rank that this thread runs for; null where it is the process's.
identity*& thread_identity() noexcept;

const identity& current_identity();

/// Makes this thread run for that rank, for this object's lifetime: ranks may be threads, and whatever runs for one of
/// them has its identity.
class acting_as {
 public:
  explicit acting_as(identity* who) noexcept;
  acting_as(const acting_as&) = delete;
  acting_as& operator=(const acting_as&) = delete;
  ~acting_as();

 private:
  identity* previous_;
};

}  // namespace hfcomm::detail
