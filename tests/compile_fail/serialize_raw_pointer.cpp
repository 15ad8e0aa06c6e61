// error: static assertion failed.*hfcomm does not serialize raw pointers
// SPDX-License-Identifier: MIT
// Within a user's function, where no concept looks.
#include <vector>

#include <hfcomm/serialization/encoding.hpp>

struct holder {
  int* pointer = nullptr;
  template <class Archive>
  void serialize(Archive& archive) {
    archive(pointer);
  }
};

int main() {
  std::vector<std::byte> bytes;
  hfcomm::encode(holder(), bytes);
}
