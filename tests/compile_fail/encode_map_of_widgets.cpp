// error: is_same_v<(_Tp, _Up> \[with _Tp = )?widget[,;]
// SPDX-License-Identifier: MIT
// The compiler names the part that cannot be serialized.
#include <map>
#include <string>
#include <vector>

#include <hfcomm/serialization/encoding.hpp>

struct widget {
  int x = 0;
};

int main() {
  std::vector<std::byte> bytes;
  hfcomm::encode(std::map<std::string, widget>(), bytes);
}
