// SPDX-License-Identifier: MIT
#pragma once

#include <source_location>
#include <string>
#include <utility>

#include <hfcomm/core/config.hpp>
#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/group/detail/launcher_parser.hpp>
#include <hfcomm/group/detail/launchers.hpp>
#include <hfcomm/group/detail/root_address.hpp>
#include <hfcomm/group/environment.hpp>

namespace hfcomm::detail::launchers {

[[gnu::cold]] HFCOMM_INLINE result slurm(environment_reader read, std::source_location where) {
  const launcher_parser parser({.source = "Slurm",
                                .rank = "SLURM_PROCID",
                                .size = "SLURM_STEP_NUM_TASKS",
                                .local_rank = "SLURM_LOCALID",
                                .local_size = "SLURM_STEP_TASKS_PER_NODE",
                                .node_rank = "SLURM_NODEID",
                                .node_count = "SLURM_STEP_NUM_NODES",
                                .job = {"SLURM_JOB_ID", "SLURM_STEP_ID"},
                                .refine = {"SLURM_STEP_NODELIST", "SLURM_RESTART_COUNT"},
                                .sizes_of_all_machines = true},
                               read, where);
  if (!read("SLURM_STEP_NUM_TASKS")) {
    return {};
  }
  launch_environment job = parser.parse();
  if (job.world_size > 1) {
    job.epoch = parser.number("SLURM_RESTART_COUNT", 0).value_or(0);
    job.rendezvous =
        detail::concat({"slurm:", parser.text("SLURM_JOB_ID"), '.', parser.text("SLURM_STEP_ID"), '/', job.epoch});
    if (const auto list = read("SLURM_STEP_NODELIST")) {
      // Slurm puts rank 0 on the first of them. SLURM_SRUN_COMM_HOST is where srun runs.
      auto first = first_host(*list);
      if (!first) {
        parser.fail(
            detail::concat({parser.shown("SLURM_STEP_NODELIST"), " is no list of hosts such as node[01-04,7],other"}));
      }
      set_root_address(job, {std::move(*first), {}});
    }
  }
  return job;
}

}  // namespace hfcomm::detail::launchers
