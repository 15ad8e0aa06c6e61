// error: wrap_it_in_std_span_for_element_by_element_or_spell_out_the_types_of_the_callable_s_parameters
// SPDX-License-Identifier: MIT
#include <vector>

#include <hfcomm/collectives/all_reduce.hpp>

int main() {
  const std::vector<int> mine(3);
  return hfcomm::all_reduce(mine, [](int a, int b) { return a + b; })[0];
}
