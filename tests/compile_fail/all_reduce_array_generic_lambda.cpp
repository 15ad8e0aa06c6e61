// error: elements_or_whole<.*wrap_it_in_std_span
// SPDX-License-Identifier: MIT
#include <array>

#include <hfcomm/collectives/all_reduce.hpp>

int main() {
  const std::array<double, 2> mine{};
  // Asking whether the callable takes arrays would be an error in its body.
  return static_cast<int>(hfcomm::all_reduce(mine, [](auto a, auto b) { return a + b; })[0]);
}
