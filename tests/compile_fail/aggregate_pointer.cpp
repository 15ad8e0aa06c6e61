// error: not_serializable<float ?\*>::a_raw_pointer_means_nothing_to_another_rank_so_use_the_value_or_a_unique_ptr_or_std_span_of_pointer_and_count
// SPDX-License-Identifier: MIT
#include <string>

#include <hfcomm/aggregates.hpp>
#include <hfcomm/collectives/all_gather.hpp>

struct array {
  int size = 0;
  float* data = nullptr;
};
struct named_array {
  std::string name = {};
  array values = {};
};

int main() { return static_cast<int>(hfcomm::all_gather(named_array()).size()); }
