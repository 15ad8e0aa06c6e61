// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <memory>
#include <string_view>

#include <hfcomm/core/call_site.hpp>
#include <hfcomm/core/config.hpp>
#include <hfcomm/core/error.hpp>
#include <hfcomm/ddp/distributed_data_parallel.hpp>
#include <hfcomm/ddp/join_options.hpp>

namespace hfcomm {

namespace detail {
class join_session;
}  // namespace detail

/// Training with unequal amounts of data: a rank that runs out early continues to take part in the other ranks' passes,
/// adding nothing, until all have run out. Nobody hangs, and no sample is left out.
///
///     hfcomm::join_scope scope(ddp);
///     for (const auto& batch : my_share) {
///       ddp.begin_forward();
///       ... backward, ddp.mark_ready(i) ...
///       ddp.finish();
///       optimizer.step();
///     }
///     scope.finish();
///
/// Inside, each `begin_forward` starts with one small exchange in ddp's group, so every pass needs it. The buffers are
/// then those of the lowest rank that has data. The gradients of the ranks that have data are summed (see reduce_op;
/// the other ranks give -0.0, in the same order), and the sum is divided once (see `divide_by`). `no_sync` and
/// `find_unused_parameters` work as outside. The ranks that have data must agree about `no_sync` (mismatch_error
/// otherwise, on every rank), except that the last step of `accumulate` does what the other ranks do.
///
/// A rank that calls `finish` after passes inside `no_sync` of this scope holds gradients that were never averaged.
/// They are not lost: they stay in memory, those of all parameters whether marked ready or not, and are added in the
/// next pass that averages. Where the other ranks make no such pass any more, because all ended inside `no_sync`, one
/// more pass averages the rest. `on_shadow` is called after it on every rank. That needs an `on_shadow` on the lowest
/// rank that had data to the last: otherwise `finish` throws usage_error on the ranks that hold such gradients and
/// peer_error on the others. Where the optimizer did not step, set accumulated gradients to zero after `finish`.
///
/// A rank that is out of data takes part in ddp's own passes only. Other collectives on ddp's group inside the loop do
/// not match them and throw mismatch_error.
///
/// Every rank opens the scope, a rank with no data at all too, and calls `finish`. A rank that leaves it otherwise, by
/// an exception or without calling `finish`, makes the others throw peer_error: in their pass if it left in the middle
/// of one, otherwise in their next `begin_forward` or their `finish` of this scope. The group and ddp stay usable. The
/// gradients of a rank that left in the middle of a pass may be touched again from its next `begin_forward` on.
///
/// Thread-safety: as ddp, which must outlive the scope. (Semantics of torch's Join context manager.)
class join_scope {
 public:
  /// Not collective. Throws usage_error where a scope of this ddp is open already.
  explicit join_scope(distributed_data_parallel& ddp, join_options options = {},
                      call_site where = call_site::current());
  join_scope(const join_scope&) = delete;
  join_scope& operator=(const join_scope&) = delete;

  /// Tells the other ranks that this one has left, unless `finish` has been called. Does not wait for them.
  ~join_scope();

  /// Ends this rank's part, for which there is no data any more: takes part in the other ranks' passes until none has
  /// any left. Then, unless `synchronize_final_model` is off, gives every rank the parameters (and the buffers, unless
  /// ddp's `broadcast_buffers` is off) of the lowest rank that had data to the last.
  ///
  /// This rank's gradients are overwritten with the averages. Collective. Throws usage_error where this rank is in the
  /// middle of a pass or has called it before, and the errors of the others' passes.
  void finish(call_site where = call_site::current());

  /// Ends this rank's part because it cannot continue: the other ranks throw peer_error with the text `why`. Does not
  /// wait for them. Does nothing where the scope is closed, or the others have failed too.
  void leave(std::string_view why) noexcept;

 private:
  [[nodiscard]] bool is_open() const noexcept;

  distributed_data_parallel& ddp_;
  std::unique_ptr<detail::join_session> session_;
  call_site where_;
  int exceptions_;
};

/// Runs `loop`, this rank's passes, in a `join_scope` and finishes that. Where the loop throws, the other ranks throw
/// peer_error with the exception's text.
template <class Loop>
void run_joined(distributed_data_parallel& ddp, const join_options& options, Loop loop,
                call_site where = call_site::current()) {
  join_scope scope(ddp, options, where);
  try {
    std::invoke(loop);
  } catch (...) {
    scope.leave(detail::current_exception_text());
    throw;
  }
  scope.finish(where);
}

}  // namespace hfcomm
