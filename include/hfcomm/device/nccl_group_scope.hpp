// SPDX-License-Identifier: MIT
#pragma once

#include <source_location>

#include <hfcomm/engine/operation.hpp>
#include <hfcomm/group/session.hpp>

namespace hfcomm {

/// Device operations of one group inside it are put on their streams together, which costs one kernel instead of many,
/// and lets sends and receives wait for each other in any order. What they give is there, in the streams' order, once
/// the scope has ended: nothing that reads it may be put on a stream before. After each 1024 operations, what there is
/// is put on the streams, and a new batch begins; but not while there are messages, which may wait for each other.
///
/// The destructor ends it too, also where an exception leaves the scope: what was called by then is done. What NCCL
/// says to that is then thrown by the group's next collective; `end` throws it at once. Throws usage_error inside
/// another scope of the same group. One thread. (NCCL's ncclGroupStart and ncclGroupEnd; torch's coalescing manager.)
class nccl_group_scope {
 public:
  explicit nccl_group_scope(const process_group& group = world(),
                            std::source_location where = std::source_location::current());
  nccl_group_scope(const nccl_group_scope&) = delete;
  nccl_group_scope& operator=(const nccl_group_scope&) = delete;
  ~nccl_group_scope();

  /// Puts what was called inside on the streams. The second time it does nothing.
  void end();

 private:
  process_group group_;
  engines::operation call_;
  bool open_ = false;
};

}  // namespace hfcomm
