// error: reduction\(typed_reduce_op<Kind>\) = delete;  // a bitwise reduction needs integer elements
// SPDX-License-Identifier: MIT
#include <complex>
#include <vector>

#include <hfcomm/collectives/all_reduce.hpp>

int main() {
  std::vector<std::complex<double>> waves(3);
  hfcomm::all_reduce(waves, hfcomm::reduce_op::bit_xor);
}
