// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <source_location>
#include <string>

#include <hfcomm/core/config.hpp>
#include <hfcomm/core/function_ref.hpp>

namespace hfcomm {

/// The place of this process in its job, as a launcher has set it.
struct launch_environment {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;      ///< Rank among the job's processes on this machine.
  int local_size = 1;      ///< Number of the job's processes on this machine.
  std::string rendezvous;  ///< Key of the job: equal on its ranks, different for other jobs. Empty in a job of one.
  std::string source;  ///< Launcher whose variables these are: "HFCOMM_*", "torchrun", "Open MPI", "PMI", "Slurm", or
                       ///< "none".
};

/// A function that returns one variable; nullopt where it is not set.
using environment_reader = function_ref<std::optional<std::string>(const char*)>;

/// Returns a variable of this process's own environment. No other thread may change it meanwhile.
[[nodiscard]] std::optional<std::string> read_process_environment(const char* name);

/// Returns this process's place in its job, from the environment. The first of these launchers whose rank or size is
/// set decides. Variables of the others, an outer launcher's for instance, do not count.
///   HFCOMM_RANK, HFCOMM_WORLD_SIZE   with HFCOMM_JOB, any text that names the job, from two processes on;
///                                    HFCOMM_LOCAL_RANK and HFCOMM_LOCAL_SIZE may be set
///   RANK, WORLD_SIZE                 as torchrun sets them, with MASTER_ADDR and MASTER_PORT from two processes on;
///                                    LOCAL_RANK, LOCAL_WORLD_SIZE, TORCHELASTIC_RUN_ID and
///                                    TORCHELASTIC_RESTART_COUNT may be set
///   OMPI_COMM_WORLD_RANK, _SIZE      as Open MPI's mpirun sets them, with PMIX_NAMESPACE; the program need not use MPI
///   PMI_RANK, PMI_SIZE               as MPICH's and Intel MPI's mpiexec set them; MPI_LOCALRANKID, MPI_LOCALNRANKS and
///                                    PMI_JOBID may be set; without the last, the ranks' launcher names the job
///   SLURM_PROCID, SLURM_STEP_NUM_TASKS   as Slurm's srun sets them, with SLURM_JOB_ID and SLURM_STEP_ID; in a batch
///                                    script outside of srun only the first is set, and does not count
///   none                             this process is a job of its own
/// The others come before Slurm because they use srun to reach other machines. Without the local variables, all ranks
/// count as being on one machine. Changes no variable. (MMEngine's `infer_launcher` and `init_dist`.)
///
/// Throws usage_error where only variables of Flux, jsrun, MVAPICH2, PALS, ALPS or PMIx say that this process is one of
/// several: their jobs need HFCOMM_* variables. Throws usage_error where variables are missing, with the names of those
/// found and those missing. Throws usage_error where a value is impossible, with its name.
[[nodiscard]] launch_environment detect_environment(std::source_location where = std::source_location::current());
/// Returns the same from variables that `read` returns, instead of the process's own.
[[nodiscard]] launch_environment detect_environment(environment_reader read,
                                                    std::source_location where = std::source_location::current());

}  // namespace hfcomm
