// error: (does not satisfy|satisfaction of) .lasting_buffer(<In>)?.
// SPDX-License-Identifier: MIT
#include <vector>

#include <hfcomm/collectives/all_gather.hpp>

// The temporary would be gone when the operation runs.
int main() {
  std::vector<float> all(3);
  hfcomm::all_gather_async(std::vector<float>(3), all).wait();
}
