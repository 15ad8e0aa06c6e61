// error: not_serializable<int ?\*>::a_raw_pointer_means_nothing_elsewhere_so_use_the_value_a_unique_ptr_or_a_span
// SPDX-License-Identifier: MIT
#include <vector>

#include <hfcomm/collectives/send.hpp>

int main() { hfcomm::send(std::vector<int*>(), 1); }
