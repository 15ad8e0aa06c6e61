// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstring>
#include <span>

#include <hfcomm/engine/shared_memory/memory.hpp>
#include <hfcomm/engine/shared_memory/steps.hpp>

namespace hfcomm::engines {

/// Puts the contribution of a rank that leaves early, of at most `small_slot_bytes`, into its cell of the next step, or
/// where it is too long for that into its small slot, which the cell then names.
inline void put_short_contribution(const lockstep& steps, std::span<const std::byte> contribution) {
  layout::flag_cell& cell = steps.cell(steps.rank(), steps.next());
  const bool in_cell = contribution.size() <= layout::inline_bytes;
  std::byte* const to = in_cell ? cell.payload : steps.small_slot(steps.rank(), steps.next());
  if (to != contribution.data() && !contribution.empty()) {  // staging_memory() may have been used
    std::memcpy(to, contribution.data(), contribution.size());
  }
  if (!in_cell) {
    layout::contribution_place{.in_segment = 0, .address = 0, .is_small = 1}.put_into(cell);
  }
}

}  // namespace hfcomm::engines
