// SPDX-License-Identifier: MIT
// With second.cpp: a program may include hfcomm in as many translation units as it likes, and they see the same world.
#include <cstdio>

#include "surface.hpp"

const hfcomm::process_group* world_of_second();
std::size_t call_everything_in_second();

int main() {
  return hfcomm::launch(2, [] {
    if (&hfcomm::world() != world_of_second()) {
      std::puts("the two translation units do not share one world");
      return 1;
    }
    if (surface::call_everything() != call_everything_in_second()) {
      std::puts("the two translation units do not behave alike");
      return 1;
    }
    return 0;
  });
}
