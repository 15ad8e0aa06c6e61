// error: reduce_async\(T&&, int, Op&&, Rest&&...\) = delete;  // wrap it in std::span
// SPDX-License-Identifier: MIT
#include <functional>
#include <vector>

#include <hfcomm/collectives/reduce.hpp>

int main() {
  std::vector<int> mine(3);
  hfcomm::reduce_async(mine, 0, std::plus<>()).wait();
}
