// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>

#include <hfcomm/engine/operation.hpp>
#include <hfcomm/engine/shared_memory/steps/lockstep.hpp>

namespace hfcomm::engines {

/// Takes the steps of an operation in a pipeline: everything that is read in a turn was published two turns before, so
/// bytes travel while others are reduced. Calls `begin()` once the ranks are known to make the same call, and
/// `do_turn(turn, step)` for each turn; `step` has what that turn reads. The last two turns only read.
template <class Begin, class DoTurn>
void run_pipeline(lockstep& steps, const operation& call, std::size_t turns, Begin&& begin, DoTurn&& do_turn) {
  const std::uint64_t first = steps.next();
  for (std::size_t turn = 0; turn < turns; ++turn) {
    if (turn == 1) {
      steps.wait_all(call);
      steps.check(call);
      begin();
    } else if (turn > 1) {
      steps.wait_all(call, first + turn - 2);
    }
    do_turn(turn, first + turn - 2);
    if (turn + 2 < turns) {
      steps.publish(call);
    }
  }
}

}  // namespace hfcomm::engines
