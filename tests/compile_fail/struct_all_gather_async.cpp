// error: not_serializable<widget>::give_it_a_serialize_member_or_save_and_load_or_enable_raw_bytes
// SPDX-License-Identifier: MIT
#include <hfcomm/collectives/all_gather.hpp>

struct widget {
  int x = 0;
};

int main() { hfcomm::all_gather_async(widget()).wait(); }
