// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <cstdlib>

// Neither Open MPI's nor MPICH's own C++ interface, which the standard has dropped.
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <hfcomm/core/config.hpp>
#include <hfcomm/engine/links/link.hpp>
#include <hfcomm/machine/fork_guard.hpp>

namespace hfcomm::engines {

/// The state of MPI in this process. MPI is initialised by whoever comes first, the program or hfcomm, and finalised by
/// the same.
class mpi_library {
 public:
  /// Initialises MPI where nobody has. Throws engine_error where MPI is finalised, or no second thread may call it. To
  /// be called in every process that mpirun has started, because MPI_Init waits for all of them.
  static void require() {
    int is_initialised = 0;
    int is_finalised = 0;
    ::MPI_Initialized(&is_initialised);
    ::MPI_Finalized(&is_finalised);
    if (is_finalised != 0) {
      throw_link_error("mpi", "MPI_Finalize was called already");
    }
    int level = MPI_THREAD_SINGLE;
    if (is_initialised != 0) {
      ::MPI_Query_thread(&level);
    } else {
      ::MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level);
      ::MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);  // MPICH asks it about errors of any communicator
      static const finaliser at_exit;
    }
    if (level < MPI_THREAD_SERIALIZED) {
      throw_link_error("mpi",
                       "MPI was initialised for calls from one thread only. Call MPI_Init_thread with "
                       "MPI_THREAD_SERIALIZED, or with MPI_THREAD_MULTIPLE where the program calls MPI while "
                       "hfcomm does; or let hfcomm initialise MPI");
    }
  }

  /// Returns whether MPI is initialised, or mpirun, mpiexec or srun has started this process for MPI.
  static bool is_meant() noexcept {
    int is_initialised = 0;
    ::MPI_Initialized(&is_initialised);
    for (const char* variable : {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK"}) {
      is_initialised += std::getenv(variable) != nullptr ? 1 : 0;
    }
    return is_initialised != 0;
  }

  /// Makes hfcomm leave without MPI_Finalize, which would wait for a lost process.
  static void give_up() noexcept { has_lost_process() = true; }

  /// Counts a link that uses MPI. A process that ends meanwhile has not ended its session: then it leaves without
  /// MPI_Finalize, in which it would wait for others that wait for it.
  static void count_link(int change) noexcept { links() += change; }

 private:
  // In MPI_Finalize of MPICH 4.0 over UCX, a process that comes late waits for answers of others that look at the
  // network no more. Its launcher takes a process for one that ended well without it; Open MPI's does not.
#if defined(MPICH_VERSION)
  static constexpr bool must_finalise = false;
#else
  static constexpr bool must_finalise = true;
#endif

  struct finaliser {
    finaliser() = default;
    finaliser(const finaliser&) = delete;
    finaliser& operator=(const finaliser&) = delete;
    ~finaliser() {
      int is_finalised = 0;
      ::MPI_Finalized(&is_finalised);
      const bool ends_well = creator.in_creating_process() && links() == 0 && !has_lost_process();
      if (must_finalise && is_finalised == 0 && ends_well) {
        ::MPI_Finalize();
      }
    }
    rendezvous::fork_guard creator;
  };

  HFCOMM_PROCESS_STATE static std::atomic<bool>& has_lost_process() noexcept {
    static std::atomic<bool> has_lost = false;
    return has_lost;
  }
  HFCOMM_PROCESS_STATE static std::atomic<int>& links() noexcept {
    static std::atomic<int> count = 0;
    return count;
  }
};

}  // namespace hfcomm::engines
