// error: wrap_both_in_std_span
// SPDX-License-Identifier: MIT
#include <vector>

#include <hfcomm/collectives/send_receive.hpp>

int main() {
  std::vector<int> out(3);
  std::vector<int> in(3);
  hfcomm::send_receive(out, 1, in, 1);
}
