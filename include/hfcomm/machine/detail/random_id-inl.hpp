// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <random>

#include <hfcomm/core/config.hpp>
#include <hfcomm/machine/random_id.hpp>
#include <hfcomm/machine/unix_socket.hpp>

namespace hfcomm::rendezvous {

HFCOMM_INLINE std::string random_id() {
  std::random_device source;
  std::string id;
  for (int word = 0; word < 2; ++word) {
    id += hexadecimal(static_cast<std::uint64_t>(source()) << 32 | source());
  }
  return id;
}

}  // namespace hfcomm::rendezvous
