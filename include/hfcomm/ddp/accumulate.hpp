// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>

#include <hfcomm/core/call_site.hpp>
#include <hfcomm/core/config.hpp>
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
/// Inside a `join_scope` the ranks may have different numbers of micro-batches. Where a rank's data ends in the middle
/// of a cycle, its last step is `step(true)`. It averages only if all ranks that have data average in that pass.
/// Otherwise it only accumulates, and the rank's gradients are added in `join_scope::finish` when the others' cycle
/// ends. So ask `synchronizes()` after `finish`, as above. The end of the scope ends the cycle on every rank.
///
/// Thread-safety: as ddp, which must outlive this. (Semantics of accelerate's `accumulate`, which divides the loss
/// itself.)
class accumulate {
 public:
  /// Throws usage_error for an `every` of 0. Not collective.
  accumulate(distributed_data_parallel& ddp, std::size_t every, call_site where = call_site::current());
  accumulate(const accumulate&) = delete;
  accumulate& operator=(const accumulate&) = delete;

  /// One micro-batch: inside `no_sync`, except in the last step of a cycle. It counts if ddp's `finish` succeeded in it
  /// and no exception leaves it; otherwise the next step repeats it.
  class step_scope {
   public:
    step_scope(accumulate& cycle, bool last);
    step_scope(const step_scope&) = delete;
    step_scope& operator=(const step_scope&) = delete;
    ~step_scope();

    /// Returns whether `finish` averages, so that the optimizer is to step afterwards. False inside a `no_sync` scope
    /// around the cycle, too; then the first step outside averages. Inside a `join_scope` it is valid for a last step
    /// from `begin_forward` on.
    [[nodiscard]] bool synchronizes() const noexcept { return synchronizes_ && !accumulates_; }

   private:
    accumulate& cycle_;
    bool accumulates_ = false;  // this step has entered no_sync, or `begin_forward` has for it
    std::uint64_t finished_before_;
    int exceptions_;
    bool synchronizes_;  // before this step entered no_sync
    bool last_;
  };

  /// Begins the next micro-batch. With `last`, the end of the data, it averages what was accumulated, and a new cycle
  /// begins.
  [[nodiscard]] step_scope step(bool last = false) { return step_scope(*this, last); }

 private:
  distributed_data_parallel& ddp_;
  std::size_t every_;
  std::size_t done_ = 0;              // steps of this cycle
  std::uint64_t finished_joins_ = 0;  // join scopes that had finished at the last step
};

}  // namespace hfcomm
