// SPDX-License-Identifier: MIT
// Every way to find hfcomm's headers is tested with it. It calls little, because that compiles in half of the time; the
// README's programs, which the test `readme` builds, call more.
#include <cstdio>
#include <optional>
#include <string>

#include <hfcomm/comm.hpp>

#ifdef HFCOMM_COMPILED
#error "The header-only way has brought the compiled way's flags along"
#endif

int main() {
  if (hfcomm::detect_environment([](const char*) { return std::optional<std::string>(); }).world_size != 1) {
    std::puts("without a launcher's variables, there is more than one process");
    return 1;
  }
  return 0;
}
