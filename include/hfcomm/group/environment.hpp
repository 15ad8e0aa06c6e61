// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <hfcomm/core/call_site.hpp>
#include <hfcomm/core/config.hpp>
#include <hfcomm/core/function_ref.hpp>

namespace hfcomm {

/// The way by which the ranks of other machines learn the address of the root: the process, on the machine of rank 0,
/// to which the other machines connect.
enum class root_lookup {
  none,     ///< No variable tells it. A job of more than one machine cannot start.
  address,  ///< Each rank knows it: launch_environment::root_host and root_ports.
  file,     ///< The root writes it into launch_environment::root_file.
  pmi,      ///< The root tells it through the launcher's PMI-1 server (MPICH, Intel MPI, Flux).
  pmix,     ///< The root tells it through the launcher's PMIx server (Open MPI, PRRTE, PALS, jsrun).
};

/// The place of this process in its job, as a launcher has set it.
struct launch_environment {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;      ///< Rank among the job's processes on this machine.
  int local_size = 1;      ///< Number of the job's processes on this machine.
  std::string rendezvous;  ///< Key of the job: equal on its ranks of one machine, different for other jobs. Empty in a
                           ///< job of one. With root_lookup::pmi, the ranks of other machines may have another.
  std::string source;      ///< Launcher whose variables these are: "HFCOMM_*", "torchrun", "Open MPI", "PALS", "Flux",
                           ///< "jsrun", "PMI", "Slurm", or "none".

  /// Whether the launcher told local_size. Where not, it is world_size: a guess.
  bool has_local_size = false;
  /// The number of this machine in the launcher's own count, and the number of machines; -1 where it does not tell.
  /// torchrun counts its agents, of which one machine may have several.
  int node_rank = -1;
  int node_count = -1;
  int epoch = 0;  ///< How often the launcher has restarted the job. It is a part of `rendezvous`, too.

  root_lookup lookup = root_lookup::none;
  /// The name or the numeric address of rank 0's machine; empty unless `lookup` is `address`.
  std::string root_host{};
  /// The ports among which the root takes the first that is free, in this order; empty unless `lookup` is `address`.
  /// Equal on all ranks. One port where the user has named it, else 8 that the job's key and epoch give.
  std::vector<std::uint16_t> root_ports{};
  std::string root_file{};  ///< The path of the file on a file system that all machines share.

  /// Returns whether all ranks are on this machine, as far as anything tells: the number of local ranks, or a
  /// `root_host` that only this machine reaches, as localhost and 127.0.0.1 are. False where they need not be: an
  /// address is given, and no number of local ranks.
  [[nodiscard]] bool is_one_machine() const;
  /// Returns whether the launcher says that the job has several machines. Both are false where nothing tells.
  [[nodiscard]] bool has_several_machines() const noexcept {
    return node_count > 1 || (has_local_size && local_size != world_size);
  }
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
///                                    LOCAL_RANK, LOCAL_WORLD_SIZE, GROUP_RANK, GROUP_WORLD_SIZE, TORCHELASTIC_RUN_ID
///                                    and TORCHELASTIC_RESTART_COUNT may be set
///   OMPI_COMM_WORLD_RANK, _SIZE      as Open MPI's mpirun sets them, with PMIX_NAMESPACE; the program need not use MPI
///   FLUX_TASK_RANK, FLUX_JOB_SIZE    as Flux sets them, with FLUX_JOB_ID
///   PALS_RANKID, PMI_SIZE            as PALS' mpiexec sets them, with PALS_APID; PMI_LOCAL_SIZE may be set
///   JSM_NAMESPACE_RANK, _SIZE        as jsrun sets them, with LSB_JOBID and PMIX_NAMESPACE
///   PMI_RANK, PMI_SIZE               as MPICH's and Intel MPI's mpiexec set them; MPI_LOCALRANKID, MPI_LOCALNRANKS and
///                                    PMI_JOBID may be set; without the last, the ranks' launcher names the job
///   SLURM_PROCID, SLURM_STEP_NUM_TASKS   as Slurm's srun sets them, with SLURM_JOB_ID and SLURM_STEP_ID; in a batch
///                                    script outside of srun only the first is set, and does not count
///   none                             this process is a job of its own
/// The others come before Slurm because they use srun to reach other machines. Flux, PALS and srun can set variables of
/// PMI or of each other, too: where ranks and sizes are the same, the variables of PMI and PALS are theirs, unless
/// MPICH's MPI_LOCALRANKID is there. Without the local variables, all ranks count as being on one machine. Changes no
/// variable. (MMEngine's `infer_launcher` and `init_dist`.)
///
/// HFCOMM_ADDRESS=host or host:port, an IPv6 address in brackets, names the machine of rank 0 whatever the launcher.
/// Without it that machine is torchrun's MASTER_ADDR, or the first of SLURM_STEP_NODELIST. MASTER_PORT is never used:
/// it is the agent's, or torch.distributed's. Below the others, PMIx or PMI finds it, where their variables are set.
///
/// Throws usage_error where only variables of MVAPICH2, ALPS or PMIx say that this process is one of several: their
/// jobs need HFCOMM_* variables. Throws usage_error where variables are missing, with the names of those found and
/// those missing. Throws usage_error where a value is impossible, with its name.
[[nodiscard, gnu::cold]] launch_environment detect_environment(call_site where = call_site::current());
/// Returns the same from variables that `read` returns, instead of the process's own.
[[nodiscard, gnu::cold]] launch_environment detect_environment(environment_reader read,
                                                               call_site where = call_site::current());

}  // namespace hfcomm
