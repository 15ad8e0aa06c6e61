// error: scan_reduction\(typed_reduce_op<Kind>\) = delete;  // a scan has no average or premultiplied sum: scan the sum
// SPDX-License-Identifier: MIT
#include <vector>

#include <hfcomm/collectives/scan.hpp>

int main() {
  std::vector<float> values(3);
  hfcomm::scan(values, hfcomm::reduce_op::average);
}
