// SPDX-License-Identifier: MIT
// A library that uses hfcomm, which a program with a session loads, or is linked with.
#include <hfcomm/comm.hpp>

#include <cstdio>

/// Returns the sum over the ranks; -1 where the library has no session, after printing why.
extern "C" [[gnu::visibility("default")]] double plugin_sum(double mine) {
  try {
    return hfcomm::all_reduce(mine);
  } catch (const hfcomm::usage_error& problem) {
    std::printf("plugin: %s\n", problem.what());
    return -1;
  }
}

extern "C" [[gnu::visibility("default")]] int plugin_rank() { return hfcomm::rank(); }
