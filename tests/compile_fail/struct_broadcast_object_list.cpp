// error: not_serializable<widget>::give_it_a_serialize_member_or_save_and_load_or_enable_raw_bytes
// SPDX-License-Identifier: MIT
#include <tuple>

#include <hfcomm/collectives/broadcast_object_list.hpp>

struct widget {
  int x = 0;
};

int main() {
  int step = 0;
  widget settings;
  hfcomm::broadcast_object_list(std::tie(step, settings));
}
