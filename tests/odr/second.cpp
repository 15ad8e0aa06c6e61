// SPDX-License-Identifier: MIT
// One file of a program brings what jobs of several machines need.
#include <hfcomm/machines.hpp>

#include "surface.hpp"

const hfcomm::process_group* world_of_second();
std::size_t call_everything_in_second();

const hfcomm::process_group* world_of_second() { return &hfcomm::world(); }
std::size_t call_everything_in_second() { return surface::call_everything(); }
