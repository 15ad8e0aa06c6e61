// error: static assertion failed.*hfcomm::enable_element_type needs a type of the element type's size
// SPDX-License-Identifier: MIT
#include <vector>

#include <hfcomm/collectives/all_reduce.hpp>

struct number {
  double value;
};
template <>
inline constexpr hfcomm::element_type hfcomm::enable_element_type<number> = hfcomm::element_type::float32;

int main() {
  std::vector<number> numbers(3);
  hfcomm::all_reduce(numbers);
}
