// error: reduction\(typed_reduce_op<Kind>\) = delete;  // complex numbers have no order, so no minimum or maximum
// SPDX-License-Identifier: MIT
#include <complex>
#include <vector>

#include <hfcomm/collectives/all_reduce.hpp>

int main() {
  std::vector<std::complex<float>> waves(3);
  hfcomm::all_reduce(waves, hfcomm::reduce_op::product);
  hfcomm::all_reduce(waves, hfcomm::reduce_op::min);
}
