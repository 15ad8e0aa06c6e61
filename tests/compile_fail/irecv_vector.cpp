// error: irecv\(R&&, Rest&&...\) = delete; +// wrap it in std::span
// SPDX-License-Identifier: MIT
#include <vector>

#include <hfcomm/collectives/recv.hpp>

int main() {
  std::vector<int> numbers(3);
  hfcomm::irecv(numbers, hfcomm::any_source).wait();
}
