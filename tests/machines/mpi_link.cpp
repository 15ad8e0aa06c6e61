// SPDX-License-Identifier: MIT
// Gives a rank the link over MPI: the one file of the program that needs MPI's headers.
#include <hfcomm/mpi.hpp>
