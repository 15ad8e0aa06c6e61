// error: static assertion failed.*hfcomm::enable_raw_bytes needs a trivially copyable class
// SPDX-License-Identifier: MIT
#include <string>
#include <vector>

#include <hfcomm/serialization/encoding.hpp>

struct named {
  std::string name;
};
template <>
inline constexpr bool hfcomm::enable_raw_bytes<named> = true;

int main() {
  std::vector<std::byte> bytes;
  hfcomm::encode(std::vector<named>(), bytes);
}
