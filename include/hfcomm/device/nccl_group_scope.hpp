// SPDX-License-Identifier: MIT
#pragma once

#include <hfcomm/core/call_site.hpp>
#include <hfcomm/engine/operation.hpp>
#include <hfcomm/group/session.hpp>

namespace hfcomm {

/// A scope whose device operations are started together, when it ends. That costs one kernel instead of many, and sends
/// and receives may be called in any order. (NCCL's ncclGroupStart and ncclGroupEnd; torch's coalescing manager.)
///
/// Work that reads the results may be put on a stream only after the scope has ended. After each 1024 operations, those
/// so far are put on their streams. That does not happen where there are messages, because they may wait for each
/// other.
///
/// The destructor ends the scope, also where an exception leaves it: the operations called so far are done. The group's
/// next collective throws NCCL's error for them; `end` throws it at once. The constructor throws usage_error inside
/// another scope of the same thread. Used by one thread.
class nccl_group_scope {
 public:
  explicit nccl_group_scope(const process_group& group = world(), call_site where = call_site::current());
  nccl_group_scope(const nccl_group_scope&) = delete;
  nccl_group_scope& operator=(const nccl_group_scope&) = delete;
  ~nccl_group_scope();

  /// Puts the operations on their streams. Does nothing the second time.
  void end();

 private:
  process_group group_;
  engines::operation call_;
  bool is_open_ = false;
};

}  // namespace hfcomm
