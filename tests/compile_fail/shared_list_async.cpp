// error: = delete;  // the list is copied, so it must be one of std::spans
// SPDX-License-Identifier: MIT
#include <vector>

#include <hfcomm/collectives/coalesced.hpp>

// The list is copied until the work is done, which buffers that own their elements cannot be.
int main() {
  std::vector<hfcomm::shared_buffer<float>> list;
  hfcomm::broadcast_async(list).wait();
}
