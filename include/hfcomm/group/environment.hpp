// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <source_location>
#include <string>

#include <hfcomm/core/config.hpp>
#include <hfcomm/core/function_ref.hpp>

namespace hfcomm {

/// Who a launcher says this process is.
struct launch_environment {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;      ///< Among the job's processes on this machine.
  int local_size = 1;      ///< The number of the job's processes on this machine.
  std::string rendezvous;  ///< Which job this is: equal on its ranks, different for others. Empty in a job of one.
  std::string source;      ///< Whose variables these are: "HFCOMM_*", "torchrun", "Open MPI", "Slurm", or "none".
};

/// Looks up one variable; nothing where it is not set.
using environment_reader = function_ref<std::optional<std::string>(const char*)>;

/// Returns a variable of this process's own environment. Not while another thread changes it.
[[nodiscard]] std::optional<std::string> read_process_environment(const char* name);

/// Asks the environment who this process is. The first of these whose rank or size is set decides; what else is set, by
/// an outer launcher, say, does not count.
///   HFCOMM_RANK, HFCOMM_WORLD_SIZE   with HFCOMM_JOB, any text that names the job, from two processes on;
///                                    HFCOMM_LOCAL_RANK and HFCOMM_LOCAL_SIZE may be set
///   RANK, WORLD_SIZE                 as torchrun sets them, with MASTER_ADDR and MASTER_PORT from two processes on;
///                                    LOCAL_RANK, LOCAL_WORLD_SIZE, TORCHELASTIC_RUN_ID and
///                                    TORCHELASTIC_RESTART_COUNT may be set
///   OMPI_COMM_WORLD_RANK, _SIZE      as Open MPI's mpirun sets them, with PMIX_NAMESPACE; the program need not use MPI
///   SLURM_PROCID, SLURM_STEP_NUM_TASKS   as Slurm's srun sets them, with SLURM_JOB_ID and SLURM_STEP_ID; in a batch
///                                    script outside of srun only the first is set, and does not count
///   none                             this process is a job of its own
/// mpirun comes before Slurm because it uses srun to get to other machines. Without the local ones, all ranks are taken
/// to be on one machine. Changes no variable. (MMEngine's `infer_launcher` and `init_dist`.)
///
/// Throws usage_error where some variables are missing, naming all that were found and all that were not, and where a
/// value cannot be, naming it.
[[nodiscard]] launch_environment detect_environment(std::source_location where = std::source_location::current());
/// The same from variables that `read` knows, instead of the process's own.
[[nodiscard]] launch_environment detect_environment(environment_reader read,
                                                    std::source_location where = std::source_location::current());

}  // namespace hfcomm
