// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <source_location>
#include <string>

#include <hfcomm/core/config.hpp>
#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/group/detail/launcher_parser.hpp>
#include <hfcomm/group/detail/launchers.hpp>
#include <hfcomm/group/detail/root_address.hpp>
#include <hfcomm/group/environment.hpp>

/// The variables of hfcomm's own, and those of torchrun.
namespace hfcomm::detail::launchers {

HFCOMM_INLINE result own(environment_reader read, std::source_location where) {
  const launcher_parser parser({.source = "HFCOMM_*",
                                .rank = "HFCOMM_RANK",
                                .size = "HFCOMM_WORLD_SIZE",
                                .local_rank = "HFCOMM_LOCAL_RANK",
                                .local_size = "HFCOMM_LOCAL_SIZE",
                                .job = {"HFCOMM_JOB"},
                                .refine = {"HFCOMM_ADDRESS"},
                                .key = "hfcomm:"},
                               read, where);
  if (!parser.present()) {
    return {};
  }
  return parser.parse();
}

[[gnu::cold]] HFCOMM_INLINE result torchrun(environment_reader read, std::source_location where) {
  const launcher_parser parser({.source = "torchrun",
                                .rank = "RANK",
                                .size = "WORLD_SIZE",
                                .local_rank = "LOCAL_RANK",
                                .local_size = "LOCAL_WORLD_SIZE",
                                .node_rank = "GROUP_RANK",
                                .node_count = "GROUP_WORLD_SIZE",
                                .job = {"MASTER_ADDR", "MASTER_PORT"},
                                .refine = {"TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"}},
                               read, where);
  if (!parser.present()) {
    return {};
  }
  launch_environment job = parser.parse();
  if (job.world_size > 1) {
    // An address has no slash and the free text comes last, so different jobs have different keys. The restart count
    // keeps a restarted job apart from remaining processes of the earlier one.
    const std::string host = parser.text("MASTER_ADDR");
    const int port = *parser.number("MASTER_PORT", 1, 65535);
    job.epoch = parser.number("TORCHELASTIC_RESTART_COUNT", 0).value_or(0);
    job.rendezvous =
        detail::concat({"torchrun:", host, '/', port, '/', job.epoch, '/', read("TORCHELASTIC_RUN_ID").value_or("")});
    // The port itself is the agent's, or is left for torch.distributed in the same program.
    set_root_address(job, {host, {}}, static_cast<std::uint16_t>(port));
  }
  return job;
}

}  // namespace hfcomm::detail::launchers
