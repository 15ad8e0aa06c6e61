// SPDX-License-Identifier: MIT
// The same table of Open MPI's operations, for compare_open_mpi.py; mpirun starts it.

#include <cstdio>
#include <exception>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "benchmark.hpp"
#include "command_line.hpp"
#include "peers/mpi_library.hpp"
#include "runner.hpp"
#include "span_operations.hpp"

namespace {

using library = bench::mpi_library;

int run_rank(const bench::settings& wanted) {
  bench::peers others;
  MPI_Comm_rank(MPI_COMM_WORLD, &others.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &others.size);
  others.barrier = [] { library::barrier(); };
  others.maximum = [](std::span<double> values) {
    MPI_Allreduce(MPI_IN_PLACE, values.data(), library::count(values), MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  };
  const bench::span_operations<library> spans(others);
  const std::string type = "float32";
  const std::vector<bench::operation> operations{spans.barrier(),
                                                 spans.broadcast<float>(type),
                                                 spans.all_gather<float>(type),
                                                 spans.gather<float>(type),
                                                 spans.reduce<float>(type),
                                                 spans.all_reduce<float>(type),
                                                 spans.all_reduce_in_place<float>(type)};
  char version[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0;
  MPI_Get_library_version(version, &length);
  const std::string text(version, static_cast<std::size_t>(length));
  return bench::run_benchmarks(text.substr(0, text.find(',')), operations, wanted, others);
}

}  // namespace

int main(int argc, char** argv) {
  int status = 0;
  MPI_Init(&argc, &argv);
  try {
    const bench::settings wanted = bench::command_line(argc, argv).parse();
    if (wanted.processes || wanted.bind || wanted.types != std::vector<std::string>{"float32"}) {
      throw bench::bad_argument("mpirun says how many processes there are and where they run; the type is float32");
    }
    if (wanted.help) {
      std::printf("compare_open_mpi: times of Open MPI's operations, to compare with `collectives`\n%s",
                  bench::command_line::help);
    } else {
      status = run_rank(wanted);
    }
  } catch (const bench::bad_argument& problem) {
    std::fprintf(stderr, "compare_open_mpi: %s\nTry --help.\n", problem.what());
    status = 2;
  } catch (const std::exception& problem) {
    // The other ranks may be waiting for this one.
    std::fprintf(stderr, "compare_open_mpi: %s\n", problem.what());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
  return status;
}
