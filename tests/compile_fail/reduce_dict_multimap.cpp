// error: no matching function for call to .*reduce_dict
// SPDX-License-Identifier: MIT
#include <map>
#include <string>

#include <hfcomm/collectives/reduce_dict.hpp>

int main() {
  static_assert(hfcomm::dictionary<std::map<std::string, double>>);
  const std::multimap<std::string, double> losses{{"loss", 1.0}, {"loss", 2.0}};
  return static_cast<int>(hfcomm::all_reduce_dict(losses, hfcomm::reduce_op::sum).size());
}
