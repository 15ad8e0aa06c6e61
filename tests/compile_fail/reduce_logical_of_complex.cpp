// error: reduction\(typed_reduce_op<Kind>\) = delete;  // complex numbers are neither true nor false
// SPDX-License-Identifier: MIT
#include <complex>
#include <vector>

#include <hfcomm/collectives/all_reduce.hpp>

int main() {
  std::vector<std::complex<double>> waves(3);
  hfcomm::all_reduce(waves, hfcomm::reduce_op::logical_and);
}
