// error: static assertion failed.*hfcomm does not serialize std::weak_ptr: use a value or a std::unique_ptr
// SPDX-License-Identifier: MIT
// With cereal's own functions for it included, hfcomm's still refuse it.
#include <cereal/types/memory.hpp>

#include <memory>
#include <vector>

#include <hfcomm/serialization/encoding.hpp>

struct holder {
  std::weak_ptr<int> pointer;
  template <class Archive>
  void serialize(Archive& archive) {
    archive(pointer);
  }
};

int main() {
  const std::vector<std::byte> bytes;
  static_cast<void>(hfcomm::decode<holder>(bytes));
}
