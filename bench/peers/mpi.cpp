// SPDX-License-Identifier: MIT
// An MPI's ranks for bench/compare; compiled once with each MPI that there is.

#include <cstdio>
#include <exception>
#include <span>
#include <string>
#include <vector>

// Without the long gone C++ bindings, whose headers do not compile without warnings.
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include "../contest.hpp"

namespace {

// The sizes are limited far below what an int counts; errors end the job, as MPI has it by default.
struct library {
  template <class T>
  using buffer = std::vector<T>;

  template <class T>
  static int count(std::span<T> data) {
    return static_cast<int>(data.size());
  }

  static void barrier() { MPI_Barrier(MPI_COMM_WORLD); }
  static void broadcast(std::span<float> data, int root) {
    MPI_Bcast(data.data(), count(data), MPI_FLOAT, root, MPI_COMM_WORLD);
  }
  static void all_gather(std::span<const float> in, std::span<float> out) {
    MPI_Allgather(in.data(), count(in), MPI_FLOAT, out.data(), count(in), MPI_FLOAT, MPI_COMM_WORLD);
  }
  static void gather(std::span<const float> in, std::span<float> out, int root) {
    MPI_Gather(in.data(), count(in), MPI_FLOAT, out.data(), count(in), MPI_FLOAT, root, MPI_COMM_WORLD);
  }
  static void reduce_scatter(std::span<const float> in, std::span<float> out) {
    MPI_Reduce_scatter_block(in.data(), out.data(), count(out), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  }
  static void all_to_all(std::span<const float> in, std::span<float> out) {
    int ranks = 1;
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Alltoall(in.data(), count(in) / ranks, MPI_FLOAT, out.data(), count(in) / ranks, MPI_FLOAT, MPI_COMM_WORLD);
  }
  template <class T>
  static void all_reduce_in_place(std::span<T> data) {
    MPI_Allreduce(MPI_IN_PLACE, data.data(), count(data), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  }
};

int run_rank() {
  int rank = 0;
  int size = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  bench::worker worker(rank, size);
  bench::contest all;
  bench::enter_barrier<library>(all, worker.others());
  bench::enter_spans<library>(all, worker.others());
  bench::enter_all_reduce<library, float>(all, worker.others(), "float32");
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
