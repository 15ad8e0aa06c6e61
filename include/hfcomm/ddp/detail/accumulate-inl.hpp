// SPDX-License-Identifier: MIT
#pragma once

#include <exception>
#include <utility>

#include <hfcomm/core/config.hpp>
#include <hfcomm/ddp/accumulate.hpp>
#include <hfcomm/ddp/detail/ddp_state.hpp>

namespace hfcomm {

HFCOMM_INLINE accumulate::accumulate(distributed_data_parallel& ddp, std::size_t every, std::source_location where)
    : ddp_(ddp), every_(every), finished_joins_(ddp.state_->finished_joins()) {
  if (every == 0) {
    detail::throw_error<usage_error>({ddp.group().rank(), ddp.group().size(), "accumulate", 0, where},
                                     {"gradients cannot be averaged in every 0th pass; 1 averages in each"});
  }
}

HFCOMM_INLINE accumulate::step_scope::step_scope(accumulate& cycle, bool last)
    : cycle_(cycle),
      finished_before_(cycle.ddp_.finished_passes()),
      exceptions_(std::uncaught_exceptions()),
      synchronizes_(cycle.ddp_.synchronizes()),
      last_(last) {
  auto& ddp = *cycle.ddp_.state_;
  if (std::exchange(cycle.finished_joins_, ddp.finished_joins()) != ddp.finished_joins()) {
    cycle.done_ = 0;
  }
  if (cycle.done_ + 1 < cycle.every_) {
    if (last) {
      ddp.open_last_step(accumulates_);
    } else {
      ddp.enter_no_sync();
      accumulates_ = true;
    }
  }
}

HFCOMM_INLINE accumulate::step_scope::~step_scope() {
  auto& ddp = *cycle_.ddp_.state_;
  const bool counts = std::uncaught_exceptions() == exceptions_ && ddp.finished_passes() != finished_before_;
  if (counts) {
    cycle_.done_ = synchronizes_ && (last_ || !accumulates_) ? 0 : cycle_.done_ + 1;
  }
  ddp.close_last_step(accumulates_);
  if (accumulates_) {
    ddp.leave_no_sync();
  }
}

}  // namespace hfcomm
