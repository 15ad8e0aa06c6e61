// error: static assertion failed.*hfcomm does not serialize pointers
// SPDX-License-Identifier: MIT
// Nor as bytes.
#include <vector>

#include <hfcomm/serialization/encoding.hpp>

struct holder {
  const char* names[2] = {};
  template <class Archive>
  void serialize(Archive& archive) {
    archive(cereal::binary_data(names, sizeof(names)));
  }
};

int main() {
  std::vector<std::byte> bytes;
  hfcomm::encode(holder(), bytes);
}
