// error: (does not satisfy|satisfaction of) .lasting_buffer(<R>)?.
// SPDX-License-Identifier: MIT
#include <hfcomm/collectives/send.hpp>

// The temporary would be gone before the message is taken.
int main() { hfcomm::isend(hfcomm::world().allocate<float>(3), 1).wait(); }
