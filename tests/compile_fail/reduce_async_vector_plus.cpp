// error: elements_or_whole<.*wrap_it_in_std_span
// SPDX-License-Identifier: MIT
#include <functional>
#include <vector>

#include <hfcomm/collectives/reduce.hpp>

int main() {
  std::vector<int> mine(3);
  hfcomm::reduce_async(mine, 0, std::plus<>()).wait();
}
