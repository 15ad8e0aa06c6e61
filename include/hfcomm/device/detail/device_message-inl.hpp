// SPDX-License-Identifier: MIT
#pragma once

#include <hfcomm/core/config.hpp>
#include <hfcomm/device/detail/device_message.hpp>
#include <hfcomm/engine/call_text.hpp>

namespace hfcomm::detail {

HFCOMM_INLINE void check_device_message(checked_call& running, const message_side* out, const message_side* in) {
  for (const message_side* side : {out, in}) {
    if (side == nullptr) {
      continue;
    }
    if (side->rank < 0 || side->rank >= running.size()) {
      running.refuse(engines::no_such_rank("rank", side->rank, running.size()));
    }
    if ((out == nullptr || in == nullptr) && side->rank == running.rank()) {
      running.refuse("a message to or from oneself would wait for itself; send_receive does both at once");
    }
    require_memory(running, side->data);
  }
}

}  // namespace hfcomm::detail
