// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <cstring>

#include <hfcomm/engine/operation.hpp>
#include <hfcomm/engine/shared_memory/memory.hpp>
#include <hfcomm/engine/shared_memory/steps.hpp>

namespace hfcomm::engines {

/// Places of an all-to-all's parts, as all ranks know them from the cells of its first step.
struct parts_in_place {
  bool any_has_empty_slot = false;
  bool any_in_heap = false;
  bool can_read_in_place = false;  // every part lies in a heap, or the kernel may read for every rank
};

[[nodiscard]] inline parts_in_place look_for_parts(const lockstep& steps, const operation& call, std::uint64_t first) {
  parts_in_place state;
  bool all_can_read_all = true;
  bool all_in_heaps = true;
  for (int from = 0; from < steps.size(); ++from) {
    layout::outgoing_places theirs;
    std::memcpy(&theirs, steps.cell(from, first).payload, sizeof(theirs));
    all_can_read_all = all_can_read_all && theirs.can_read_all != 0;
    all_in_heaps = all_in_heaps && (theirs.in_segment != 0 || !call.contributes(from));
    state.any_in_heap = state.any_in_heap || theirs.in_segment != 0;
    state.any_has_empty_slot = state.any_has_empty_slot || theirs.has_empty_slot != 0;
  }
  state.can_read_in_place = all_can_read_all || all_in_heaps;
  return state;
}

}  // namespace hfcomm::engines
