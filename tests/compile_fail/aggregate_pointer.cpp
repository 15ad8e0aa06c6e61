// error: not_serializable<float ?\*>::a_raw_pointer_means_nothing_elsewhere_so_use_the_value_a_unique_ptr_or_a_span
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
