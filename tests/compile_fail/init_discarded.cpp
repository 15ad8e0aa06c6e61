// error: the session ends when it is destroyed: auto session = hfcomm::init\(\);
// SPDX-License-Identifier: MIT
#include <hfcomm/group/session.hpp>

#pragma GCC diagnostic error "-Wunused-result"

int main() { hfcomm::init(); }
