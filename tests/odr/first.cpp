// SPDX-License-Identifier: MIT
// With second.cpp: a program may include hfcomm in as many translation units as it likes, and they see the same world.
#include <atomic>
#include <cstdio>

#include <hfcomm/testing.hpp>

#include "surface.hpp"

const hfcomm::process_group* world_of_second();
std::size_t call_everything_in_second();

int main() {
  // This file does not include <hfcomm/machines.hpp>, and the other one does.
  std::atomic<int> machines{0};
  hfcomm::testing::run_ranks(2,
                             [&](const hfcomm::process_group& world) {
                               machines += hfcomm::all_reduce(hfcomm::node_rank(), hfcomm::reduce_op::sum, world);
                             },
                             {.machines = {1, 1}});
  if (machines != 2) {
    std::puts("one translation unit does not have the several machines of the other");
    return 1;
  }
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
