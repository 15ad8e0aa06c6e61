// error: ::it_would_be_gone_when_the_operation_runs_so_keep_it_until_the_work_is_done
// SPDX-License-Identifier: MIT
#include <hfcomm/collectives/send.hpp>

// The temporary would be gone before the message is taken.
int main() { hfcomm::isend(hfcomm::world().allocate<float>(3), 1).wait(); }
