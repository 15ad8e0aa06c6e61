// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstdint>
#include <iterator>
#include <source_location>
#include <string>
#include <string_view>
#include <utility>

#include <unistd.h>

#include <hfcomm/core/config.hpp>
#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/core/error.hpp>
#include <hfcomm/core/std_algorithm.hpp>
#include <hfcomm/group/detail/launcher_parser.hpp>
#include <hfcomm/group/detail/missing_session-inl.hpp>
#include <hfcomm/group/detail/root_address.hpp>
#include <hfcomm/group/environment.hpp>
#include <hfcomm/machine/process_state.hpp>

/// The launchers that hfcomm knows.
namespace hfcomm::detail::launchers {

/// Returns whether two variables are set and equal.
inline bool are_equal(environment_reader read, const char* one, const char* other) {
  const auto value = read(one);
  return value && value == read(other);
}

/// Returns whether rank and size of PMI are those that another launcher has set: then its own PMI server has set them.
/// MPICH's mpiexec also sets MPI_LOCALRANKID.
inline bool has_set_pmi(environment_reader read, const char* rank, const char* size) {
  return are_equal(read, "PMI_RANK", rank) && are_equal(read, "PMI_SIZE", size) && !read("MPI_LOCALRANKID");
}

/// MPICH's mpiexec, in a task of Flux, has started processes with other ranks.
inline bool is_outer_flux(environment_reader read) {
  return read("PMI_RANK") && !has_set_pmi(read, "FLUX_TASK_RANK", "FLUX_JOB_SIZE");
}

/// srun sets variables of PALS for Cray's MPI.
inline bool is_outer_pals(environment_reader read) {
  const bool is_slurm = are_equal(read, "PALS_RANKID", "SLURM_PROCID") &&
                        are_equal(read, "PMI_SIZE", "SLURM_STEP_NUM_TASKS") && !read("MPI_LOCALRANKID");
  return is_slurm || (read("PMI_RANK") && !are_equal(read, "PALS_RANKID", "PMI_RANK"));
}

/// `srun --mpi=pmi2` sets variables of PMI, too; Slurm's own variables tell more.
inline bool is_outer_pmi(environment_reader read) { return has_set_pmi(read, "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"); }

HFCOMM_INLINE void complete_torchrun(launch_environment& job, const launcher_parser& parser, environment_reader read) {
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

/// Names the job after the process that has launched this one and the other ranks of this machine, by its number and
/// the time at which it started, unless PMI_JOBID names it. The process is MPICH's proxy, which may be behind a shell,
/// or else the parent.
HFCOMM_INLINE void complete_pmi(launch_environment& job, const launcher_parser& /*parser*/, environment_reader read) {
  if (const auto name = read("PMI_JOBID")) {
    job.rendezvous = detail::concat({"pmi:", *name});
    return;
  }
  pid_t launching = ::getppid();
  for (pid_t pid = launching; pid > 1;) {
    const auto process = rendezvous::describe_process(pid);
    if (process.name == "hydra_pmi_proxy") {
      launching = pid;
      break;
    }
    pid = process.parent;
  }
  job.rendezvous = detail::concat({"pmi:", launching, '/', rendezvous::describe_process(launching).start});
}

HFCOMM_INLINE void complete_slurm(launch_environment& job, const launcher_parser& parser, environment_reader read) {
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

struct launcher {
  launcher_variables variables;
  /// Returns whether another launcher has started this process, although this one's variables are set; null: it has
  /// not.
  bool (*is_outer)(environment_reader read) = nullptr;
  /// Adds what else the variables tell of a job of several processes; null: nothing.
  void (*complete)(launch_environment& job, const launcher_parser& parser, environment_reader read) = nullptr;
};

/// In the order of detect_environment. No variable of those of MPI programs names the machine of rank 0; their PMIx or
/// PMI server does.
inline constexpr launcher known[] = {{.variables = {.source = "HFCOMM_*",
                                                    .rank = "HFCOMM_RANK",
                                                    .size = "HFCOMM_WORLD_SIZE",
                                                    .local_rank = "HFCOMM_LOCAL_RANK",
                                                    .local_size = "HFCOMM_LOCAL_SIZE",
                                                    .job = {"HFCOMM_JOB"},
                                                    .refine = {"HFCOMM_ADDRESS"},
                                                    .key = "hfcomm:"}},
                                     {.variables = {.source = "torchrun",
                                                    .rank = "RANK",
                                                    .size = "WORLD_SIZE",
                                                    .local_rank = "LOCAL_RANK",
                                                    .local_size = "LOCAL_WORLD_SIZE",
                                                    .node_rank = "GROUP_RANK",
                                                    .node_count = "GROUP_WORLD_SIZE",
                                                    .job = {"MASTER_ADDR", "MASTER_PORT"},
                                                    .refine = {"TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"}},
                                      .complete = &complete_torchrun},
                                     {.variables = {.source = "Open MPI",
                                                    .rank = "OMPI_COMM_WORLD_RANK",
                                                    .size = "OMPI_COMM_WORLD_SIZE",
                                                    .local_rank = "OMPI_COMM_WORLD_LOCAL_RANK",
                                                    .local_size = "OMPI_COMM_WORLD_LOCAL_SIZE",
                                                    .job = {"PMIX_NAMESPACE"},
                                                    .key = "openmpi:"}},
                                     {.variables = {.source = "Flux",
                                                    .rank = "FLUX_TASK_RANK",
                                                    .size = "FLUX_JOB_SIZE",
                                                    .local_rank = "FLUX_TASK_LOCAL_ID",
                                                    .local_size = "MPI_LOCALNRANKS",
                                                    .node_count = "FLUX_JOB_NNODES",
                                                    .job = {"FLUX_JOB_ID"},
                                                    .key = "flux:"},
                                      .is_outer = &is_outer_flux},
                                     {.variables = {.source = "PALS",
                                                    .rank = "PALS_RANKID",
                                                    .size = "PMI_SIZE",
                                                    .decisive = "PALS_RANKID",
                                                    .local_rank = "PALS_LOCAL_RANKID",
                                                    .local_size = "PALS_LOCAL_SIZE",
                                                    .better_local_size = "PMI_LOCAL_SIZE",
                                                    .node_rank = "PALS_NODEID",
                                                    .job = {"PALS_APID"},
                                                    .key = "pals:"},
                                      .is_outer = &is_outer_pals},
                                     {.variables = {.source = "jsrun",
                                                    .rank = "JSM_NAMESPACE_RANK",
                                                    .size = "JSM_NAMESPACE_SIZE",
                                                    .local_rank = "JSM_NAMESPACE_LOCAL_RANK",
                                                    .local_size = "JSM_NAMESPACE_LOCAL_SIZE",
                                                    .job = {"LSB_JOBID", "PMIX_NAMESPACE"},
                                                    .key = "jsrun:"}},
                                     {.variables = {.source = "PMI",
                                                    .rank = "PMI_RANK",
                                                    .size = "PMI_SIZE",
                                                    .local_rank = "MPI_LOCALRANKID",
                                                    .local_size = "MPI_LOCALNRANKS",
                                                    .refine = {"PMI_JOBID"}},
                                      .is_outer = &is_outer_pmi,
                                      .complete = &complete_pmi},
                                     {.variables = {.source = "Slurm",
                                                    .rank = "SLURM_PROCID",
                                                    .size = "SLURM_STEP_NUM_TASKS",
                                                    .decisive = "SLURM_STEP_NUM_TASKS",
                                                    .local_rank = "SLURM_LOCALID",
                                                    .local_size = "SLURM_STEP_TASKS_PER_NODE",
                                                    .node_rank = "SLURM_NODEID",
                                                    .node_count = "SLURM_STEP_NUM_NODES",
                                                    .job = {"SLURM_JOB_ID", "SLURM_STEP_ID"},
                                                    .refine = {"SLURM_STEP_NODELIST", "SLURM_RESTART_COUNT"},
                                                    .sizes_of_all_machines = true},
                                      .complete = &complete_slurm}};

static_assert(std::equal(std::begin(known), std::end(known), std::begin(names_of_launchers),
                         std::end(names_of_launchers), [](const launcher& one, const launcher_names& names) {
                           return one.variables.rank == std::string_view(names.rank) &&
                                  one.variables.size == std::string_view(names.size);
                         }));

/// Throws usage_error where a launcher has started this process as one of several, and its variables do not tell
/// enough. Otherwise each process would be a job of its own, and compute the same.
[[gnu::cold]] HFCOMM_INLINE void refuse_unknown(environment_reader read, std::source_location where) {
  struct unknown_launcher {
    const char* name;
    const char* rank;
    const char* size;             // null where no variable has it
    const char* alone = nullptr;  // is 1 where no launcher has started the process
  };
  constexpr std::array unknown{unknown_launcher{"MVAPICH2", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"},
                               unknown_launcher{"ALPS", "ALPS_APP_PE", nullptr},
                               // MPI_Init sets both in a program that mpirun has not started.
                               unknown_launcher{"PMIx", "PMIX_RANK", nullptr, "OMPI_APP_CTX_NUM_PROCS"}};
  for (const unknown_launcher& one : unknown) {
    const auto rank = read(one.rank);
    const auto size = one.size != nullptr ? read(one.size) : std::nullopt;
    if ((rank || size) && size != "1" && (one.alone == nullptr || read(one.alone) != "1")) {
      const char* const found = rank ? one.rank : one.size;
      detail::throw_error<usage_error>(
          {-1, 0, "detect_environment", 0, where},
          {one.name, " has started this process (", found, "=\"", rank ? *rank : *size,
           "\"), but hfcomm does not understand its variables; set HFCOMM_RANK, HFCOMM_WORLD_SIZE and "  // NOLINT
           "HFCOMM_JOB for each process, or unset ",
           found, " for a job of one"});
    }
  }
}

}  // namespace hfcomm::detail::launchers
