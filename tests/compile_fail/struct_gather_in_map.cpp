// error: not_serializable<widget>::give_it_a_serialize_member_or_save_and_load_or_enable_raw_bytes
// SPDX-License-Identifier: MIT
// The compiler names the part that cannot be serialized.
#include <map>
#include <string>

#include <hfcomm/collectives/gather.hpp>

struct widget {
  int x = 0;
};

int main() { return static_cast<int>(hfcomm::gather(std::map<std::string, widget>(), 1).size()); }
