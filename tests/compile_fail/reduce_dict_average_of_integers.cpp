// error: reduction\(typed_reduce_op<Kind>\) = delete;  // an average or premultiplied sum needs floating-point elements
// SPDX-License-Identifier: MIT
#include <map>
#include <string>

#include <hfcomm/collectives/reduce_dict.hpp>

int main() {
  const std::map<std::string, int> counts{{"n", 1}};
  return hfcomm::reduce_dict(counts).at("n");
}
