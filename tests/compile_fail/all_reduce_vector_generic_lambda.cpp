// error: elements_or_whole<.*wrap_it_in_std_span
// SPDX-License-Identifier: MIT
// It would be the greatest vector in lexicographic order, not the greatest elements.
#include <algorithm>
#include <vector>

#include <hfcomm/collectives/all_reduce.hpp>

int main() {
  const std::vector<int> mine(3);
  return hfcomm::all_reduce(mine, [](auto a, auto b) { return std::max(a, b); })[0];
}
