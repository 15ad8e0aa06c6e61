// SPDX-License-Identifier: MIT
// What mpirun.sh starts: each rank finds the others by what the launcher's variables say.
#include <hfcomm/comm.hpp>

int main() {
  const auto session = hfcomm::init();
  const auto ranks = hfcomm::all_gather(hfcomm::rank());
  hfcomm::print_main("ranks ", ranks.size(), " sum ", hfcomm::all_reduce(hfcomm::rank()), " local ",
                     hfcomm::local_size());
}
