// error: ::shared_ownership_could_alias_objects_of_other_types_so_use_the_value_or_a_unique_ptr
// SPDX-License-Identifier: MIT
#include <map>
#include <memory>
#include <vector>

#include <hfcomm/collectives/all_gather.hpp>

int main() {
  const std::map<int, std::vector<std::shared_ptr<int>>> graph;
  return static_cast<int>(hfcomm::all_gather(graph).size());
}
