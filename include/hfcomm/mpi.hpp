// SPDX-License-Identifier: MIT
#pragma once

/// Lets MPI carry the data between the machines of a job, for networks that UCX does not know, and for programs that
/// are MPI programs anyway. One file of the program includes this header, and the program is compiled and linked as
/// MPI's compiler wrapper (mpicxx) does it. Open MPI and MPICH work.
///
/// The link is taken where MPI is initialised, or mpirun has started the program; HFCOMM_LINK names another. hfcomm
/// initialises MPI only where the program has not. A program that does needs MPI_THREAD_SERIALIZED or more;
/// MPI_THREAD_MULTIPLE where it calls MPI while hfcomm works.

// IWYU pragma: begin_exports
#include <hfcomm/machines.hpp>

#include <hfcomm/engine/links/mpi.hpp>
// IWYU pragma: end_exports
