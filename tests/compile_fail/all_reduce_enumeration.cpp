// error: not_reducible<color>::pass_a_callable_that_combines_two_or_enable_element_type
// SPDX-License-Identifier: MIT
#include <vector>

#include <hfcomm/collectives/all_reduce.hpp>

enum class color { red, green };

int main() {
  std::vector<color> colors(3);
  hfcomm::all_reduce(colors);
}
