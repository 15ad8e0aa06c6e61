// error: ::behind_a_polymorphic_pointer_derived_parts_would_be_lost_so_use_a_final_class_or_a_variant
// SPDX-License-Identifier: MIT
#include <memory>
#include <vector>

#include <hfcomm/collectives/broadcast.hpp>

struct shape {
  virtual ~shape() = default;
  template <class Archive>
  void serialize(Archive&) {}
};

int main() {
  std::vector<std::unique_ptr<shape>> shapes;
  hfcomm::broadcast(shapes);
}
