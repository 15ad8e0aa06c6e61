// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <hfcomm/core/config.hpp>
#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/core/error.hpp>
#include <hfcomm/group/detail/root_exchange.hpp>
#include <hfcomm/group/environment.hpp>
#include <hfcomm/rendezvous/address_exchange.hpp>
#include <hfcomm/rendezvous/pmi_client.hpp>

namespace hfcomm::detail {

HFCOMM_INLINE std::vector<std::pair<std::string, std::string>> found_variables(environment_reader read) {
  constexpr const char* names[] = {
      "HFCOMM_RANK", "HFCOMM_WORLD_SIZE", "HFCOMM_LOCAL_RANK", "HFCOMM_LOCAL_SIZE", "HFCOMM_JOB", "HFCOMM_ADDRESS",
      "HFCOMM_INTERFACE", "HFCOMM_AUTH", "HFCOMM_SECRET_FILE",
      // torchrun
      "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "MASTER_ADDR",
      "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_USE_AGENT_STORE",
      // Open MPI, PMIx
      "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE",
      "PMIX_NAMESPACE", "PMIX_RANK", "PMIX_HOSTNAME",
      // Flux
      "FLUX_TASK_RANK", "FLUX_JOB_SIZE", "FLUX_TASK_LOCAL_ID", "FLUX_JOB_NNODES", "FLUX_JOB_ID",
      // PALS, ALPS
      "PALS_RANKID", "PALS_LOCAL_RANKID", "PALS_LOCAL_SIZE", "PALS_NODEID", "PALS_APID", "ALPS_APP_PE",
      // jsrun
      "JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE", "JSM_NAMESPACE_LOCAL_RANK", "JSM_NAMESPACE_LOCAL_SIZE", "LSB_JOBID",
      // MPICH, Intel MPI, MVAPICH2
      "PMI_RANK", "PMI_SIZE", "PMI_LOCAL_RANK", "PMI_LOCAL_SIZE", "PMI_FD", "PMI_PORT", "PMI_JOBID", "MPI_LOCALRANKID",
      "MPI_LOCALNRANKS", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE",
      // Slurm
      "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_JOB_ID", "SLURM_STEP_ID",
      "SLURM_STEP_NUM_TASKS", "SLURM_STEP_NUM_NODES", "SLURM_STEP_TASKS_PER_NODE", "SLURM_STEP_NODELIST",
      "SLURM_RESTART_COUNT"};
  std::vector<std::pair<std::string, std::string>> found;
  for (const char* name : names) {
    if (auto value = read(name)) {
      found.emplace_back(name, std::move(*value));
    }
  }
  return found;
}

HFCOMM_PROCESS_STATE HFCOMM_INLINE std::unique_ptr<rendezvous::address_exchange> make_address_exchange(
    const launch_environment& job, const error_context& context) {
  static std::atomic<int> starts{0};  // equal on all ranks, because each start is of all of them
  switch (job.lookup) {
    case root_lookup::address:
      return std::make_unique<rendezvous::address_exchange>(
          rendezvous::root_address{{job.root_host}, job.root_ports, {}});
    case root_lookup::file: return rendezvous::exchange_in_file(job.root_file);
    case root_lookup::pmi: return rendezvous::exchange_by_pmi(rendezvous::pmi_client::of_process(), ++starts);
    case root_lookup::pmix: return rendezvous::exchange_by_pmix(++starts, job.world_size);
    case root_lookup::none: break;
  }
  std::string found;
  for (const auto& [name, value] : found_variables([](const char* name) { return read_process_environment(name); })) {
    found += found.empty() ? "" : ", ";
    found += name;
    append(found, {"=\"", value, '"'});
  }
  throw_error<usage_error>(
      context, {"the job has ", job.world_size, " ranks, ", job.local_size,
                " of them on this machine, but nothing tells where rank 0 is: ", job.source, " has set ",
                found.empty() ? "nothing that does" : found,
                "; set HFCOMM_ADDRESS in each process to a host name or address of rank 0's machine "  // NOLINT
                "that the others reach"});
}

}  // namespace hfcomm::detail
