// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <source_location>
#include <utility>

#include <hfcomm/ddp/distributed_data_parallel.hpp>

namespace hfcomm {

/// Gradient accumulation: averages over the ranks only in every `every`-th backward pass.
///
///     hfcomm::accumulate cycle(ddp, 4);
///     for (std::size_t i = 0; i < batches.size(); ++i) {
///       const auto step = cycle.step(i + 1 == batches.size());
///       ddp.begin_forward();
///       ... backward, which adds to the gradients ...
///       ddp.finish();
///       if (step.synchronizes()) {
///         optimizer.step();
///         optimizer.zero_grad();
///       }
///     }
///
/// The gradients are averaged over the ranks, but summed over the micro-batches: for the mean, divide the loss by
/// `every`. All ranks must take the same steps (mismatch_error from ddp otherwise).
///
/// Inside a `join_scope` the ranks may have unequally many micro-batches. The last step of a rank whose data ends in
/// the middle of a cycle, `step(true)`, averages only if all ranks that have data average in that pass; otherwise it
/// only accumulates, and the rank's gradients are added in `join_scope::finish` when the others' cycle ends. So ask
/// `synchronizes()` after `finish`, as above. The end of the scope ends the cycle on every rank.
///
/// Thread-safety: as ddp, which must outlive this. (Semantics of accelerate's `accumulate`, which divides the loss
/// itself.)
class accumulate {
 public:
  /// Throws usage_error for an `every` of 0. Not collective.
  accumulate(distributed_data_parallel& ddp, std::size_t every,
             std::source_location where = std::source_location::current())
      : ddp_(ddp), every_(every), scopes_(ddp.finished_scopes_) {
    if (every == 0) {
      throw usage_error({ddp.group().rank(), ddp.group().size(), "accumulate", 0, where},
                        "gradients cannot be averaged in every 0th pass; 1 averages in each");
    }
  }
  accumulate(const accumulate&) = delete;
  accumulate& operator=(const accumulate&) = delete;

  /// One micro-batch: inside `no_sync` but in the last one of a cycle. It counts if ddp's `finish` succeeded in it and
  /// no exception leaves it; otherwise the next step is the same one again.
  class step_scope {
   public:
    step_scope(accumulate& cycle, bool last) : cycle_(cycle), finished_before_(cycle.ddp_.finished_passes()) {
      if (std::exchange(cycle.scopes_, cycle.ddp_.finished_scopes_) != cycle.ddp_.finished_scopes_) {
        cycle.done_ = 0;
      }
      synchronizes_ = cycle.ddp_.synchronizes();
      if (cycle.done_ + 1 < cycle.every_) {
        if (last) {
          cycle.ddp_.last_step_ = &off_;
        } else {
          off_.emplace(cycle.ddp_);
        }
      }
      last_ = last;
    }
    step_scope(const step_scope&) = delete;
    step_scope& operator=(const step_scope&) = delete;
    ~step_scope() {
      const bool counts =
          std::uncaught_exceptions() == exceptions_ && cycle_.ddp_.finished_passes() != finished_before_;
      if (counts) {
        cycle_.done_ = synchronizes_ && (last_ || !off_) ? 0 : cycle_.done_ + 1;
      }
      if (cycle_.ddp_.last_step_ == &off_) {
        cycle_.ddp_.last_step_ = nullptr;
      }
    }

    /// Whether `finish` averages, so that the optimizer is to step afterwards. False inside a `no_sync` scope around
    /// the cycle, too; then the averaging is made up for in the first step outside. Inside a `join_scope` a last step
    /// knows it from `begin_forward` on.
    [[nodiscard]] bool synchronizes() const noexcept { return synchronizes_ && !off_; }

   private:
    accumulate& cycle_;
    std::optional<distributed_data_parallel::no_sync_scope> off_;
    std::uint64_t finished_before_;
    int exceptions_ = std::uncaught_exceptions();
    bool synchronizes_ = false;  // but for this step's own no_sync
    bool last_ = false;
  };

  /// The next micro-batch. With `last`, the end of the data, it averages whatever has come together, and a new cycle
  /// begins.
  [[nodiscard]] step_scope step(bool last = false) { return step_scope(*this, last); }

 private:
  distributed_data_parallel& ddp_;
  std::size_t every_;
  std::size_t done_ = 0;      // of this cycle
  std::uint64_t scopes_ = 0;  // join scopes that had ended at the last step
};

}  // namespace hfcomm
