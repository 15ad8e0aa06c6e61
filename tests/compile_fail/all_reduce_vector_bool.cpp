// error: not_combined<std::vector<(bool|_Bool)>, .*>::the_callable_takes_two_of_them_and_returns_one
// SPDX-License-Identifier: MIT
// Its elements are bits, so there is no std::span of them.
#include <functional>
#include <vector>

#include <hfcomm/collectives/all_reduce.hpp>

int main() {
  const std::vector<bool> mine(3);
  return hfcomm::all_reduce(mine, std::logical_or<bool>())[0] ? 1 : 0;
}
