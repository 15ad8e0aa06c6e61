// SPDX-License-Identifier: MIT
#include <hfcomm/comm.hpp>

int main() { return hfcomm::rank(); }
