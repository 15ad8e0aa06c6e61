// SPDX-License-Identifier: MIT
// The smallest program that uses hfcomm: every way to find or build the compiled part is tested with it.
#include <cstdio>
#include <string>
#include <vector>

#include <hfcomm/comm.hpp>

#ifndef HFCOMM_COMPILED
#error "The flags of the compiled way lack -DHFCOMM_COMPILED"
#endif

int main() {
  if (hfcomm::all_gather(std::string("x")) != std::vector<std::string>{"x"}) {
    std::puts("all_gather in a group of one did not return the one value");
    return 1;
  }
  return hfcomm::launch(2, [] {
    const std::vector<std::string> names = hfcomm::all_gather("rank " + std::to_string(hfcomm::rank()));
    return names == std::vector<std::string>{"rank 0", "rank 1"} ? 0 : 1;
  });
}
