// SPDX-License-Identifier: MIT
#pragma once

#include <span>
#include <vector>

// Without the long gone C++ bindings, whose headers do not compile without warnings.
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

namespace bench {

/// An MPI's operations on floats, for span_operations. The sizes are limited far below what an int counts; errors end
/// the job, as MPI has it by default.
struct mpi_library {
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
  static void scatter(std::span<const float> in, std::span<float> out, int root) {
    MPI_Scatter(in.data(), count(out), MPI_FLOAT, out.data(), count(out), MPI_FLOAT, root, MPI_COMM_WORLD);
  }
  static void send(std::span<const float> data, int rank) {
    MPI_Send(data.data(), count(data), MPI_FLOAT, rank, 0, MPI_COMM_WORLD);
  }
  static void receive(std::span<float> data, int rank) {
    MPI_Recv(data.data(), count(data), MPI_FLOAT, rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }
  static void reduce(std::span<const float> in, std::span<float> out, int root) {
    MPI_Reduce(in.data(), out.data(), count(in), MPI_FLOAT, MPI_SUM, root, MPI_COMM_WORLD);
  }
  static void all_reduce(std::span<const float> in, std::span<float> out) {
    MPI_Allreduce(in.data(), out.data(), count(in), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  }
  static void all_reduce_in_place(std::span<float> data) {
    MPI_Allreduce(MPI_IN_PLACE, data.data(), count(data), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  }
  static void reduce_scatter(std::span<const float> in, std::span<float> out) {
    MPI_Reduce_scatter_block(in.data(), out.data(), count(out), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  }
  static void all_to_all(std::span<const float> in, std::span<float> out) {
    int ranks = 1;
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Alltoall(in.data(), count(in) / ranks, MPI_FLOAT, out.data(), count(in) / ranks, MPI_FLOAT, MPI_COMM_WORLD);
  }
};

}  // namespace bench
