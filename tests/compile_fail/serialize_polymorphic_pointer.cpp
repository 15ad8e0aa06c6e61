// error: static assertion failed.*of no polymorphic class unless it is final
// SPDX-License-Identifier: MIT
// The parts of a derived class would be cut off.
#include <memory>
#include <vector>

#include <hfcomm/serialization/encoding.hpp>

struct shape {
  int x = 0;
  virtual ~shape() = default;
  template <class Archive>
  void serialize(Archive& archive) {
    archive(x);
  }
};

struct holder {
  std::unique_ptr<shape> pointer;
  template <class Archive>
  void serialize(Archive& archive) {
    archive(pointer);
  }
};

int main() {
  std::vector<std::byte> bytes;
  hfcomm::encode(holder(), bytes);
}
