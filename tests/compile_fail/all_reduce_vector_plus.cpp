// error: all_reduce\(T&&, Op&&, Rest&&...\) = delete;  // wrap it in std::span
// SPDX-License-Identifier: MIT
// A container is one object to a callable, and std::plus<> takes numbers.
#include <functional>
#include <vector>

#include <hfcomm/collectives/all_reduce.hpp>

int main() {
  const std::vector<int> mine(3);
  return hfcomm::all_reduce(mine, std::plus<>())[0];
}
