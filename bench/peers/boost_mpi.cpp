// SPDX-License-Identifier: MIT
// Boost.MPI's ranks for bench/compare: objects; its spans are the MPI's.

#include <cstdio>
#include <exception>
#include <vector>

#define OMPI_SKIP_MPICXX 1
#include <boost/mpi.hpp>
#include <boost/serialization/map.hpp>
#include <boost/serialization/string.hpp>
#include <boost/serialization/vector.hpp>
#include <boost/version.hpp>

#include "../compared_operations.hpp"

namespace {

boost::mpi::communicator& world() {
  static boost::mpi::communicator all;
  return all;
}

struct library {
  template <class T>
  static void broadcast(T& object) {
    boost::mpi::broadcast(world(), object, 0);
  }
  template <class T>
  static std::vector<T> all_gather(const T& object) {
    std::vector<T> all;
    boost::mpi::all_gather(world(), object, all);
    return all;
  }
  template <class T>
  static std::vector<T> gather(const T& object) {
    std::vector<T> all;
    if (world().rank() == 0) {
      boost::mpi::gather(world(), object, all, 0);
    } else {
      boost::mpi::gather(world(), object, 0);
    }
    return all;
  }
};

}  // namespace

int main(int count, char** arguments) {
  boost::mpi::environment environment(count, arguments);
  try {
    bench::worker worker(world().rank(), world().size());
    bench::compared_operations all;
    bench::add_all_objects<library>(all, worker.others());
    return worker.serve(
        "Boost.MPI " + std::to_string(BOOST_VERSION / 100'000) + '.' + std::to_string(BOOST_VERSION / 100 % 1000), all);
  } catch (const std::exception& problem) {
    std::fprintf(stderr, "boost_mpi: %s\n", problem.what());
    environment.abort(1);
    return 1;
  }
}
