// error: // an average needs floating-point elements: name the operation first
// SPDX-License-Identifier: MIT
#include <map>
#include <string>

#include <hfcomm/collectives/reduce_dict.hpp>

// The default operation is an average, also where the group stands in its place.
int main() {
  const std::map<std::string, int> counts{{"n", 1}};
  return hfcomm::reduce_dict(counts, hfcomm::world()).at("n");
}
