// SPDX-License-Identifier: MIT
#pragma once

#include <source_location>

#include <hfcomm/call/async.hpp>

namespace hfcomm {

/// Returns once every rank of the group has called it. (detectron2's `synchronize`, torch's `barrier`; no GPU is
/// asked.)
inline void barrier(const process_group& group = world(),
                    std::source_location where = std::source_location::current()) {
  operation call{.name = "barrier", .where = where};
  detail::running_call running(group, call);
  no_receiver nothing;
  running.engine().exchange(call, {}, nothing);
}

/// Starts to wait for all ranks: the work is done when every rank has started it.
inline work<void> barrier_async(const process_group& group = world(),
                                std::source_location where = std::source_location::current()) {
  return detail::start("barrier", group, where, [group, where] { barrier(group, where); });
}

}  // namespace hfcomm
