// error: not_serializable<widget>::give_it_a_serialize_member_or_save_and_load_or_enable_raw_bytes
// SPDX-License-Identifier: MIT
#include <hfcomm/collectives/reduce.hpp>

struct widget {
  int x = 0;
};

int main() {
  hfcomm::reduce_async(widget(), 0, [](widget a, widget) { return a; }).wait();
}
