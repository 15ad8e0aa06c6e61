// SPDX-License-Identifier: MIT
// The program that mpirun.sh starts: the ranks find each other through the launcher's variables.
#include <hfcomm/comm.hpp>

int main() {
  const auto session = hfcomm::init();
  const auto ranks = hfcomm::all_gather(hfcomm::rank());
  hfcomm::print_main("ranks ", ranks.size(), " sum ", hfcomm::all_reduce(hfcomm::rank()), " local ",
                     hfcomm::local_size());
}
