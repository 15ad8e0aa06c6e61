// error: elements_or_whole<.*wrap_it_in_std_span
// SPDX-License-Identifier: MIT
// A container is one object to a callable, and std::plus<> takes numbers.
#include <functional>
#include <vector>

#include <hfcomm/collectives/all_reduce.hpp>

int main() {
  const std::vector<int> mine(3);
  return hfcomm::all_reduce(mine, std::plus<>())[0];
}
