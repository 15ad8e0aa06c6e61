// SPDX-License-Identifier: MIT
#pragma once

/// Lets buffers go straight from rank to rank between machines, where each machine of the job has one rank and the link
/// is TCP or UCX. The thread that waits sends and receives them, without a copy of the group's memory on each machine.
/// One file of the program includes this header. On all machines of a job, or on none: init() throws engine_error
/// where they differ.
///
/// Barriers, reductions, and broadcast, gather, all_gather, scatter and all_to_all of buffers take a half to nine
/// tenths of the time. Objects, and buffers of lengths that not all ranks know, go as without it, and so does all where
/// a machine has several ranks. Results, errors and deadlines are the same; what differs is told within about 40 ms.

#include <memory>
#include <vector>

// IWYU pragma: begin_exports
#include <hfcomm/machines.hpp>
// IWYU pragma: end_exports

#include <hfcomm/engine/machines/direct_collectives.hpp>

namespace hfcomm::detail {

inline const bool carries_directly = [] {
  engines::registered_direct() =
      [](engines::lockstep& steps, engines::machine_agent& agent,
         const std::vector<int>& machine_of) -> std::unique_ptr<engines::machine_collectives> {
    return std::make_unique<engines::direct_collectives>(steps, agent, machine_of);
  };
  return true;
}();

}  // namespace hfcomm::detail
