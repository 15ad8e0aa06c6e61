// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <source_location>
#include <span>
#include <utility>
#include <vector>

#include <hfcomm/call/typed_calls.hpp>
#include <hfcomm/ddp/detail/join_agreement.hpp>
#include <hfcomm/ddp/join_options.hpp>
#include <hfcomm/engine/table_receiver.hpp>
#include <hfcomm/group/detail/running_call.hpp>

namespace hfcomm::detail {

/// One rank's side of an open join scope: its state, and the exchange before every backward pass.
class join_session {
 public:
  using pass_kind = join_pass_kind;
  using agreed_pass = join_agreement::agreed_pass;

  explicit join_session(join_options options) : options_(std::move(options)) {}

  /// Tells the other ranks what kind of pass this one is about to begin, and returns what all agree on. A pass that
  /// averages and `yields` becomes one that accumulates where others accumulate.
  ///
  /// Its errors are thrown on every rank: mismatch_error where kinds or options differ; usage_error and peer_error
  /// where some ranks ran out of data and that is not allowed. The latter also where gradients are left over that no
  /// rank could use.
  agreed_pass agree_on_pass(const process_group& group, pass_kind kind, bool yields, std::uint64_t pass,
                            std::source_location where) {
    failed_ = true;
    std::vector<join_announcement> all(static_cast<std::size_t>(group.size()));
    const join_announcement own = announcement(kind, yields);
    operation call = buffer_call<std::uint8_t>("join_scope", movement::to_all, sizeof(own), -1, where);
    call.tag = pass;
    bool has_entered = false;
    try {
      running_call running(group, call, &has_entered);
      const error_context context = running.context();
      table_receiver table(std::as_writable_bytes(std::span(all)), group.rank());
      try {
        running.engine().exchange(call, std::as_bytes(std::span(&own, 1)), table);
      } catch (const error&) {
        // A rank that called another operation has failed there, and will tell that it leaves the scope.
        failed_ = group.broken() || running.engine().same_name_everywhere(true);
        throw;
      }
      const agreed_pass agreed = join_agreement(all, options_, leader_, pass, context, running.engine()).reach();
      leader_ = agreed.live > 0 ? agreed.leader : leader_;
      return agreed;
    } catch (const usage_error&) {
      failed_ = has_entered;  // refused before it could take part: the others do not know
      throw;
    }
  }

  /// Declares that the ranks rely on each other again: they have passed everything that fails on all ranks together.
  void set_working() noexcept { failed_ = false; }

  void begin_pass(bool averages) noexcept {
    in_pass_ = true;
    averages_ = averages;
  }
  void end_pass() noexcept { in_pass_ = false; }

  /// Throws usage_error where no pass can begin.
  void require_can_begin(const error_context& context) const {
    require_working(context);
    if (in_pass_) {
      throw_error<usage_error>(context, {"begin_forward was called twice without finish: inside a join scope it begins "
                                         "a backward pass that all ranks take part in"});
    }
  }

  /// Throws usage_error where this rank does not do what it announced in begin_forward: the other ranks rely on it.
  void require_in_pass(const char* function, bool synchronizes, const error_context& context) const {
    if (!in_pass_) {
      throw_error<usage_error>(context, {function,
                                         " without begin_forward: inside a join scope it begins every backward "
                                         "pass, so that ranks without data can take part"});
    }
    if (averages_ != synchronizes) {
      const char* const places[] = {"inside", "outside"};
      throw_error<usage_error>(context, {"begin_forward was called ", places[averages_], " no_sync, ", function, ' ',
                                         places[synchronizes], " of it"});
    }
  }

  /// Throws usage_error where the scope cannot finish.
  void require_can_finish(const error_context& context) const {
    if (in_pass_) {
      throw_error<usage_error>(context, {"the join scope cannot end between begin_forward and finish of a pass"});
    }
    require_working(context);
  }

  /// Records whether this rank's gradients hold sums that were never averaged.
  void set_left_over(bool left_over) noexcept { left_over_ = left_over; }
  [[nodiscard]] bool has_left_over() const noexcept { return left_over_; }

  /// Returns whether all ranks have failed together, so that no rank waits for another any more.
  [[nodiscard]] bool has_failed() const noexcept { return failed_; }
  [[nodiscard]] bool is_in_pass() const noexcept { return in_pass_; }
  [[nodiscard]] bool averages() const noexcept { return averages_; }
  /// Returns the lowest rank that had data in the last pass.
  [[nodiscard]] int leader() const noexcept { return leader_; }
  [[nodiscard]] const join_options& options() const noexcept { return options_; }

 private:
  [[nodiscard]] join_announcement announcement(pass_kind kind, bool yields) const {
    return {.kind = kind,
            .divisor = options_.divisor,
            .throw_on_early_end = options_.throw_on_early_end,
            .synchronize_final_model = options_.synchronize_final_model,
            .yields = yields,
            .has_left_over = left_over_,
            .has_on_shadow = options_.on_shadow != nullptr};
  }

  void require_working(const error_context& context) const {
    if (failed_) {
      throw_error<usage_error>(context, {"the ranks of this join scope have failed together; leave it"});
    }
  }

  join_options options_;
  bool failed_ = false;
  bool in_pass_ = false;
  bool averages_ = false;
  bool left_over_ = false;
  int leader_ = 0;
};

}  // namespace hfcomm::detail
