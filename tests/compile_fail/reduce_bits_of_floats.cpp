// error: reduction\(typed_reduce_op<Kind>\) = delete;  // a bitwise reduction needs integer elements
// SPDX-License-Identifier: MIT
#include <span>
#include <vector>

#include <hfcomm/collectives/all_reduce.hpp>

int main() {
  std::vector<float> values(3);
  hfcomm::all_reduce(std::span(values), hfcomm::reduce_op::bit_or);
}
