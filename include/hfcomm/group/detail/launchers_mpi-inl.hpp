// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <source_location>
#include <string>

#include <unistd.h>

#include <hfcomm/core/config.hpp>
#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/core/error.hpp>
#include <hfcomm/group/detail/launcher_parser.hpp>
#include <hfcomm/group/detail/launchers.hpp>
#include <hfcomm/group/environment.hpp>
#include <hfcomm/machine/process_state.hpp>

/// Launchers of MPI programs. None of their variables names the machine of rank 0; their PMIx or PMI server does.
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

/// Returns a name for the process that has launched this one and the other ranks of this machine: its number, and the
/// time at which it started. It is MPICH's proxy, which may be behind a shell, or else the parent.
HFCOMM_INLINE std::string launching_process() {
  const auto name_of = [](pid_t pid) { return detail::concat({pid, '/', rendezvous::describe_process(pid).start}); };
  const pid_t parent = ::getppid();
  for (pid_t pid = parent; pid > 1;) {
    const auto process = rendezvous::describe_process(pid);
    if (process.name == "hydra_pmi_proxy") {
      return name_of(pid);
    }
    pid = process.parent;
  }
  return name_of(parent);
}

HFCOMM_INLINE result open_mpi(environment_reader read, std::source_location where) {
  const launcher_parser parser({.source = "Open MPI",
                                .rank = "OMPI_COMM_WORLD_RANK",
                                .size = "OMPI_COMM_WORLD_SIZE",
                                .local_rank = "OMPI_COMM_WORLD_LOCAL_RANK",
                                .local_size = "OMPI_COMM_WORLD_LOCAL_SIZE",
                                .job = {"PMIX_NAMESPACE"},
                                .key = "openmpi:"},
                               read, where);
  if (!parser.present()) {
    return {};
  }
  return parser.parse();
}

[[gnu::cold]] HFCOMM_INLINE result flux(environment_reader read, std::source_location where) {
  const launcher_parser parser({.source = "Flux",
                                .rank = "FLUX_TASK_RANK",
                                .size = "FLUX_JOB_SIZE",
                                .local_rank = "FLUX_TASK_LOCAL_ID",
                                .local_size = "MPI_LOCALNRANKS",
                                .node_count = "FLUX_JOB_NNODES",
                                .job = {"FLUX_JOB_ID"},
                                .key = "flux:"},
                               read, where);
  // MPICH's mpiexec, in a task of Flux, has started processes with other ranks.
  const bool is_outer = read("PMI_RANK") && !has_set_pmi(read, "FLUX_TASK_RANK", "FLUX_JOB_SIZE");
  if (!parser.present() || is_outer) {
    return {};
  }
  return parser.parse();
}

[[gnu::cold]] HFCOMM_INLINE result pals(environment_reader read, std::source_location where) {
  const launcher_parser parser({.source = "PALS",
                                .rank = "PALS_RANKID",
                                .size = "PMI_SIZE",
                                .local_rank = "PALS_LOCAL_RANKID",
                                .local_size = read("PMI_LOCAL_SIZE") ? "PMI_LOCAL_SIZE" : "PALS_LOCAL_SIZE",
                                .node_rank = "PALS_NODEID",
                                .job = {"PALS_APID"},
                                .key = "pals:"},
                               read, where);
  // srun sets variables of PALS for Cray's MPI.
  const bool is_slurm = are_equal(read, "PALS_RANKID", "SLURM_PROCID") &&
                        are_equal(read, "PMI_SIZE", "SLURM_STEP_NUM_TASKS") && !read("MPI_LOCALRANKID");
  const bool is_outer = read("PMI_RANK") && !are_equal(read, "PALS_RANKID", "PMI_RANK");
  if (!read("PALS_RANKID") || is_slurm || is_outer) {
    return {};
  }
  return parser.parse();
}

HFCOMM_INLINE result jsrun(environment_reader read, std::source_location where) {
  const launcher_parser parser({.source = "jsrun",
                                .rank = "JSM_NAMESPACE_RANK",
                                .size = "JSM_NAMESPACE_SIZE",
                                .local_rank = "JSM_NAMESPACE_LOCAL_RANK",
                                .local_size = "JSM_NAMESPACE_LOCAL_SIZE",
                                .job = {"LSB_JOBID", "PMIX_NAMESPACE"},
                                .key = "jsrun:"},
                               read, where);
  if (!parser.present()) {
    return {};
  }
  return parser.parse();
}

[[gnu::cold]] HFCOMM_INLINE result pmi(environment_reader read, std::source_location where) {
  const launcher_parser parser({.source = "PMI",
                                .rank = "PMI_RANK",
                                .size = "PMI_SIZE",
                                .local_rank = "MPI_LOCALRANKID",
                                .local_size = "MPI_LOCALNRANKS",
                                .refine = {"PMI_JOBID"}},
                               read, where);
  // `srun --mpi=pmi2` sets them, too; Slurm's own variables tell more.
  if (!parser.present() || has_set_pmi(read, "SLURM_PROCID", "SLURM_STEP_NUM_TASKS")) {
    return {};
  }
  launch_environment job = parser.parse();
  if (job.world_size > 1) {
    const auto name = read("PMI_JOBID");
    job.rendezvous = detail::concat({"pmi:", name ? *name : launching_process()});
  }
  return job;
}

HFCOMM_INLINE void refuse_unknown(environment_reader read, std::source_location where) {
  struct launcher {
    const char* name;
    const char* rank;
    const char* size;  // null where no variable has it
  };
  constexpr std::array known{launcher{"MVAPICH2", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"},
                             launcher{"ALPS", "ALPS_APP_PE", nullptr}, launcher{"PMIx", "PMIX_RANK", nullptr}};
  for (const launcher& one : known) {
    const auto rank = read(one.rank);
    const auto size = one.size != nullptr ? read(one.size) : std::nullopt;
    if ((rank || size) && size != "1") {
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
