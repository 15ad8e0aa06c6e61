// error: ::it_would_be_gone_when_the_operation_runs_so_keep_it_until_the_work_is_done
// SPDX-License-Identifier: MIT
#include <vector>

#include <hfcomm/collectives/all_gather.hpp>

// The temporary would be gone when the operation runs.
int main() {
  std::vector<float> all(3);
  hfcomm::all_gather_async(std::vector<float>(3), all).wait();
}
