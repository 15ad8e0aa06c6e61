// error: reduction\(typed_reduce_op<Kind>\) = delete;  // an average or premultiplied sum needs floating-point elements
// SPDX-License-Identifier: MIT
#include <vector>

#include <hfcomm/collectives/all_reduce.hpp>

int main() {
  std::vector<int> counts(3);
  hfcomm::all_reduce(counts, hfcomm::reduce_op::average);
}
