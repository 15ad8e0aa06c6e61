// error: not_serializable<widget>::give_it_a_serialize_member_or_save_and_load_or_enable_raw_bytes
// SPDX-License-Identifier: MIT
#include <hfcomm/collectives/recv.hpp>

struct widget {
  int x = 0;
};

int main() { return hfcomm::recv<widget>(0).x; }
