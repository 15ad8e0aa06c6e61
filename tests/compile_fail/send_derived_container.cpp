// error: (does not satisfy|satisfaction of) .(buffer_view|serializable)(<R>|<T>)?.
// SPDX-License-Identifier: MIT
#include <vector>

#include <hfcomm/collectives/send.hpp>

struct tensor : std::vector<float> {
  std::vector<int> shape;
  template <class Archive>
  void serialize(Archive& archive) {
    archive(shape);
  }
};

// Both its own function and its base's could be meant. It is no mere buffer either, or its shape would be lost.
int main() { hfcomm::send(tensor(), 1); }
