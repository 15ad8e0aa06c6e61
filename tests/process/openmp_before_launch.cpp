// SPDX-License-Identifier: MIT
// A program that works with OpenMP, then launches ranks that do, too.
#include <hfcomm/comm.hpp>

namespace {

int threads_that_work() {
  int count = 0;
#pragma omp parallel num_threads(2) reduction(+ : count)
  ++count;
  return count;
}

}  // namespace

int main() {
  if (threads_that_work() != 2) {
    return 1;
  }
  return hfcomm::launch(2, [] { return hfcomm::all_reduce(threads_that_work()) == 4 ? 0 : 1; });
}
