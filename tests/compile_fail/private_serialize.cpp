// error: its_serialize_is_private_or_takes_no_archive_so_make_cereal_access_a_friend_or_make_it_a_template
// SPDX-License-Identifier: MIT
#include <hfcomm/collectives/broadcast.hpp>

class account {
  template <class Archive>
  void serialize(Archive& archive) {
    archive(balance_);
  }
  int balance_ = 0;
};

void give(account& one) { hfcomm::broadcast(one); }
