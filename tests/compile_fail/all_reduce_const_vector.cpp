// error: constant_elements<int>::pass_another_buffer_for_the_result
// SPDX-License-Identifier: MIT
#include <vector>

#include <hfcomm/collectives/all_reduce.hpp>

int main() {
  const std::vector<int> mine(3);
  hfcomm::all_reduce(mine);
}
