// SPDX-License-Identifier: MIT
#pragma once

#include <sys/random.h>

#include <hfcomm/core/config.hpp>
#include <hfcomm/machine/random_id.hpp>
#include <hfcomm/machine/shared_segment.hpp>
#include <hfcomm/machine/unix_socket.hpp>

namespace hfcomm::rendezvous {

// Not std::random_device: <random> is large, and a number of it may take microseconds.
HFCOMM_INLINE std::uint64_t random_word() {
  std::uint64_t word = 0;
  if (::getrandom(&word, sizeof(word), 0) != sizeof(word)) {  // never fewer than eight bytes
    throw_system("the system has no random number");
  }
  return word;
}

HFCOMM_INLINE std::string random_id() { return hexadecimal(random_word()) + hexadecimal(random_word()); }

}  // namespace hfcomm::rendezvous
