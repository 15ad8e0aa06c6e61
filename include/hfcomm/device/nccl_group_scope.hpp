// SPDX-License-Identifier: MIT
#pragma once

#include <exception>
#include <source_location>
#include <utility>

#include <hfcomm/call/device_call.hpp>

namespace hfcomm {

/// Device operations of one group inside it are put on their streams together, which costs one kernel instead of many,
/// and lets sends and receives wait for each other in any order. What they give is there, in the streams' order, once
/// the scope has ended: nothing that reads it may be put on a stream before. After each 1024 operations, what there is
/// is put on the streams, and a new lot begins; but not while there are messages, which may wait for each other.
///
/// The destructor ends it too, also where an exception leaves the scope: what was called by then is done. What NCCL
/// says to that is then thrown by the group's next collective; `end` throws it at once. Throws usage_error inside
/// another scope of the same group. One thread. (NCCL's ncclGroupStart and ncclGroupEnd; torch's coalescing manager.)
class nccl_group_scope {
 public:
  explicit nccl_group_scope(const process_group& group = world(),
                            std::source_location where = std::source_location::current())
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
  nccl_group_scope(const nccl_group_scope&) = delete;
  nccl_group_scope& operator=(const nccl_group_scope&) = delete;
  ~nccl_group_scope() {
    try {
      end();
    } catch (...) {
      detail::defer(group_, std::current_exception());
    }
  }

  /// Puts what was called inside on the streams. The second time it does nothing.
  void end() {
    if (std::exchange(open_, false)) {
      auto& engine = *detail::group_access::state(group_).devices;
      // NCCL may wait for other ranks in it, where it has not connected them before.
      const auto note =
          engine.watched() != nullptr ? engine.watched()->add(nullptr, call_, engine.sequence()) : nullptr;
      const over_at_the_end mark{note.get()};
      engine.end_batch(call_);
    }
  }

 private:
  struct over_at_the_end {
    detail::device_note* note;
    ~over_at_the_end() {
      if (note != nullptr) {
        note->over.store(true);
      }
    }
  };

  process_group group_;
  operation call_;
  bool open_ = false;
};

}  // namespace hfcomm
