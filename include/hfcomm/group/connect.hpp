// SPDX-License-Identifier: MIT
#pragma once

#include <hfcomm/core/call_site.hpp>
#include <hfcomm/core/options.hpp>
#include <hfcomm/group/process_group.hpp>

namespace hfcomm {

/// Makes a group that its members alone make, apart from the session and from other groups; returns it when all have
/// come. Each member passes its rank in the group, the group's size, and a name of it (`init_options::init_method`)
/// that the members share with nobody else at that time. Without options the group has all ranks of the launcher's job.
///
///     hfcomm::process_group pair = hfcomm::connect({.init_method = "job://pair", .rank = mine, .world_size = 2});
///
/// Any number of groups can be made, before, inside and after a session, one after another under one name, too. A group
/// and a session of one name do not meet. `world()` and the like stay as they are. Each member is a process.
///
/// The members' part ends with the last handle of the group and of those that were split off it. The other members
/// learn that, and whether an exception was the reason. Where this process connects the members of its machine to other
/// machines, the end waits up to 10 s until they have ended, too.
///
/// Throws as `init` does: usage_error for options that do not fit together, also those of other members; timeout_error,
/// with the ranks that did not come, after `start_timeout`; engine_error. Throws usage_error on a rank of `run_ranks`,
/// which is a thread, and without options on one that no launcher's variables tell its rank, as those of `launch`.
/// Thread-safety: one thread at a time.
/// (MPI's `MPI_Comm_create_group`.)
[[nodiscard]] process_group connect(const init_options& options = {}, call_site where = call_site::current());

}  // namespace hfcomm
