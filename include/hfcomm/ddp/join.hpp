// SPDX-License-Identifier: MIT
#pragma once

#include <exception>
#include <functional>
#include <source_location>
#include <string_view>
#include <utility>

#include <hfcomm/ddp/distributed_data_parallel.hpp>

namespace hfcomm {

/// Training with unequal amounts of data: a rank that runs out early goes on taking part in the other ranks' passes,
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
/// then those of the lowest rank that has data. The sum of the gradients of the ranks that have data, in rank order, is
/// divided once (see `divide_by`), so all ranks get the bits that one process would calculate. `no_sync` and
/// `find_unused_parameters` work as ever; the ranks that have data must agree about `no_sync` (mismatch_error
/// otherwise, on every rank), except that the last step of `accumulate` joins in what the others do.
///
/// A rank that calls `finish` after passes inside `no_sync` of this scope holds gradients that were never averaged.
/// They are not lost: they stay in memory, all parameters' whether marked ready or not, and are added in the next pass
/// that averages. Where the other ranks make none any more, because all ended inside `no_sync`, one more pass averages
/// what is left, and `on_shadow` is called after it on every rank. That needs an `on_shadow` on the lowest rank that
/// had data to the last: otherwise `finish` throws usage_error on the ranks that hold such gradients and peer_error on
/// the others. Gradients that accumulate are to be set to zero after `finish`, where the optimizer did not step.
///
/// A rank that is out of data answers nothing but ddp's own passes: other collectives on ddp's group inside the loop
/// meet it there and are a mismatch_error.
///
/// Every rank opens the scope, a rank with no data at all too, and calls `finish`. A rank that leaves it otherwise, by
/// an exception or without calling `finish`, makes the others throw peer_error: in their pass if it left in the middle
/// of one, or else in their next `begin_forward` or their `finish` of this scope. The group and ddp stay usable; the
/// gradients of a rank that left in the middle of a pass may be touched again from its next `begin_forward` on.
///
/// Thread-safety: as ddp, which must outlive the scope. (Semantics of torch's Join context manager.)
class join_scope {
 public:
  /// Not collective. Throws usage_error where a scope of this ddp is open already.
  explicit join_scope(distributed_data_parallel& ddp, join_options options = {},
                      std::source_location where = std::source_location::current())
      : ddp_(ddp), session_(std::move(options)), where_(where), exceptions_(std::uncaught_exceptions()) {
    if (ddp_.joining_ != nullptr) {
      throw usage_error(ddp_.context(where), "a join scope of this distributed_data_parallel is open already");
    }
    ddp_.joining_ = &session_;
  }
  join_scope(const join_scope&) = delete;
  join_scope& operator=(const join_scope&) = delete;

  /// Without `finish` before it: tells the other ranks that this one has left. Does not wait for them.
  ~join_scope() {
    // What exception it is only its catcher will know; the others wait a moment for that.
    leave(std::uncaught_exceptions() > exceptions_ ? "" : "it left its join scope without calling finish()");
  }

  /// This rank is out of data: takes part in the other ranks' passes until none has any left, then, unless
  /// `synchronize_final_model` is off, gives every rank the parameters (and the buffers, unless ddp's
  /// `broadcast_buffers` is off) of the lowest rank that had data to the last.
  ///
  /// This rank's gradients are overwritten with the averages. Collective. Throws usage_error where this rank is in the
  /// middle of a pass or has called it before, and what the others' passes meet.
  void finish(std::source_location where = std::source_location::current()) {
    if (!is_open()) {
      throw usage_error(ddp_.context(where), "this join scope is closed already");
    }
    if (session_.under_way()) {
      throw usage_error(ddp_.context(where), "the join scope cannot end between begin_forward and finish of a pass");
    }
    if (session_.over()) {
      throw usage_error(ddp_.context(where), "the ranks of this join scope have failed together; leave it");
    }
    try {
      while (true) {
        const auto round = ddp_.shadow_pass(where);
        if (round.over()) {
          break;
        }
        if (round.averages && session_.options().on_shadow) {
          session_.options().on_shadow();
        }
      }
    } catch (...) {
      leave(detail::current_exception_text());
      throw;
    }
    ddp_.joining_ = nullptr;
    ++ddp_.finished_scopes_;
    if (session_.options().synchronize_final_model) {
      ddp_.share_values(session_.leader(), where);
      ddp_.share_buffers_if_wanted(session_.leader(), where);
    }
  }

  /// This rank cannot go on, because of `why`: the other ranks throw peer_error with that text. Does not wait for them.
  /// Does nothing where the scope is closed, or the others have failed too.
  void leave(std::string_view why) noexcept {
    if (is_open()) {
      ddp_.leave_join(why, where_);
    }
  }

 private:
  [[nodiscard]] bool is_open() const noexcept { return ddp_.joining_ == &session_; }

  distributed_data_parallel& ddp_;
  detail::join_session session_;
  std::source_location where_;
  int exceptions_;
};

/// Runs `loop`, this rank's passes, in a `join_scope` and finishes that. Where the loop throws, the other ranks throw
/// peer_error with the exception's text.
template <class Loop>
void run_joined(distributed_data_parallel& ddp, const join_options& options, Loop loop,
                std::source_location where = std::source_location::current()) {
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
