// error: not_serializable<widget>::give_it_a_serialize_member_or_save_and_load_or_enable_raw_bytes
// SPDX-License-Identifier: MIT
#include <hfcomm/collectives/message_batch.hpp>

struct widget {
  int x = 0;
};

int main() {
  widget taken;
  hfcomm::message_batch batch;
  batch.recv(taken, 1).run();
}
