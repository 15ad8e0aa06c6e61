// SPDX-License-Identifier: MIT
// HFCOMM_FUZZ_TARGET=TARGET libfuzzer ARGUMENT OF libFuzzer...: see tools/fuzz. (libFuzzer starts itself again for some
// tasks, with arguments of its own.)
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "targets.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fuzz::target* const chosen = [] {
    const char* name = std::getenv("HFCOMM_FUZZ_TARGET");
    const fuzz::target* found = fuzz::find_target(name != nullptr ? name : "");
    if (found == nullptr) {
      std::fputs("libfuzzer: HFCOMM_FUZZ_TARGET names no target\n", stderr);
      std::exit(2);
    }
    return found;
  }();
  chosen->run(std::as_bytes(std::span(data, size)));
  return 0;
}
