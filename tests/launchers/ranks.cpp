// SPDX-License-Identifier: MIT
// The program that mpirun.sh starts: the ranks find each other through the launcher's variables.
#include <stdexcept>

#include <hfcomm/comm.hpp>

/// With an argument, the last rank throws, and the others do not catch what they get of it.
int main(int count, char**) {
  const auto session = hfcomm::init();
  if (count > 1) {
    hfcomm::barrier();
    if (hfcomm::rank() == hfcomm::world_size() - 1) {
      throw std::runtime_error("no such file: data.bin");
    }
    hfcomm::barrier();
  }
  const auto ranks = hfcomm::all_gather(hfcomm::rank());
  hfcomm::print_main("ranks ", ranks.size(), " sum ", hfcomm::all_reduce(hfcomm::rank()), " local ",
                     hfcomm::local_size());
}
