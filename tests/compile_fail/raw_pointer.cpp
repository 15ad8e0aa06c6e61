// error: not_serializable<int ?\*>::a_raw_pointer_means_nothing_to_another_rank_so_use_the_value_or_a_unique_ptr_or_std_span_of_pointer_and_count
// SPDX-License-Identifier: MIT
#include <vector>

#include <hfcomm/collectives/send.hpp>

int main() { hfcomm::send(std::vector<int*>(), 1); }
