// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <fstream>
#include <string>

namespace multi_rank {

/// Returns how /proc/self/maps describes the permissions of the memory at an address: "rw-s" where it is shared.
inline std::string permissions_at(const void* address) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    const auto dash = line.find('-');
    const auto space = line.find(' ');
    const auto where = reinterpret_cast<std::uintptr_t>(address);
    if (std::stoull(line.substr(0, dash), nullptr, 16) <= where &&
        where < std::stoull(line.substr(dash + 1, space), nullptr, 16)) {
      return line.substr(space + 1, 4);
    }
  }
  return "none";
}

}  // namespace multi_rank
