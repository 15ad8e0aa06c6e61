// error: not_serializable<tensor>::a_container_s_own_functions_and_its_base_s_are_ambiguous_so_make_the_base_a_member
// SPDX-License-Identifier: MIT
#include <cereal/types/vector.hpp>

#include <vector>

#include <hfcomm/collectives/send.hpp>

struct tensor : std::vector<float> {
  std::vector<int> shape;
  template <class Archive>
  void serialize(Archive& archive) {
    archive(shape);
  }
};

// Both its own function and cereal's for its base could be meant. It is no mere buffer either, or its shape would be
// lost.
int main() { hfcomm::send(tensor(), 1); }
