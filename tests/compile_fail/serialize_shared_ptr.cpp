// error: static assertion failed.*hfcomm does not serialize std::shared_ptr: use a value or a std::unique_ptr
// SPDX-License-Identifier: MIT
// Within a user's function, where no concept looks.
#include <memory>
#include <vector>

#include <hfcomm/serialization/encoding.hpp>

struct holder {
  std::shared_ptr<int> pointer;
  template <class Archive>
  void serialize(Archive& archive) {
    archive(pointer);
  }
};

int main() {
  std::vector<std::byte> bytes;
  hfcomm::encode(holder(), bytes);
}
