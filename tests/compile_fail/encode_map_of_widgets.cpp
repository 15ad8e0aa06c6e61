// error: not_serializable<widget>::give_it_a_serialize_member_or_save_and_load_or_enable_raw_bytes
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
