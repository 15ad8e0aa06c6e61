// SPDX-License-Identifier: MIT
// An MPI's ranks for bench/compare; compiled once with each MPI that there is.

#include <cstdio>
#include <exception>
#include <span>
#include <string>
#include <vector>

#include "../compared_operations.hpp"
#include "mpi_library.hpp"

namespace {

using library = bench::mpi_library;

int run_rank() {
  int rank = 0;
  int size = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  bench::worker worker(rank, size);
  bench::compared_operations all;
  bench::add_barrier<library>(all, worker.others());
  bench::add_spans<library>(all, worker.others());
  bench::add_all_reduce<library, float>(all, worker.others(), "float32");
  char version[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0;
  MPI_Get_library_version(version, &length);
  const std::string text(version, static_cast<std::size_t>(length));
  return worker.serve(text.substr(0, text.find_first_of(",\n")), all);
}

}  // namespace

int main(int count, char** arguments) {
  int status = 1;
  MPI_Init(&count, &arguments);
  try {
    status = run_rank();
  } catch (const std::exception& problem) {
    std::fprintf(stderr, "mpi: %s\n", problem.what());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
  return status;
}
