// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <source_location>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <hfcomm/call/call.hpp>
#include <hfcomm/call/refuse.hpp>
#include <hfcomm/ddp/join_options.hpp>
#include <hfcomm/engine/call_text.hpp>

namespace hfcomm::detail {

/// One rank's side of an open join scope: what the ranks tell each other before every backward pass, and whether the
/// ranks still count on each other.
class join_session {
 public:
  enum class plan : std::uint8_t { out_of_data, accumulates, averages };

  /// A pass that the ranks have agreed on.
  struct round {
    int live = 0;     ///< How many ranks have data; 0 where none has any left.
    int divisor = 0;  ///< Of the gradients' sum.
    int leader = 0;   ///< The lowest of those with data.
    bool averages = false;

    /// Nothing is left to do: no data, no gradients that were never averaged.
    [[nodiscard]] bool over() const noexcept { return live == 0 && !averages; }
  };

  explicit join_session(join_options options) : options_(std::move(options)) {}

  /// Tells the other ranks what this one is about to do, and hears it of them. Where it throws, it throws on every
  /// rank: mismatch_error where their plans or options differ, usage_error and peer_error where some ran out of data
  /// and that is not allowed, or gradients are left over that nobody could use. A plan to average that `yields` is
  /// given up where others accumulate.
  round meet(const process_group& group, plan mine, bool yields, std::uint64_t pass, std::source_location where) {
    over_ = true;
    std::vector<word> words(static_cast<std::size_t>(group.size()));
    const word own{static_cast<std::uint8_t>(mine),
                   static_cast<std::uint8_t>(options_.divisor),
                   static_cast<std::uint8_t>(options_.throw_on_early_end),
                   static_cast<std::uint8_t>(options_.synchronize_final_model),
                   static_cast<std::uint8_t>(yields),
                   static_cast<std::uint8_t>(left_over_),
                   static_cast<std::uint8_t>(options_.on_shadow != nullptr)};
    operation call = buffer_call<std::uint8_t>("join_scope", movement::to_all, own.size(), -1, where);
    call.tag = pass;
    const entry_mark mark(call);
    try {
      running_call running(group, call);
      const error_context context = running.context();
      table_receiver table(std::as_writable_bytes(std::span(words)), group.rank());
      try {
        running.engine().exchange(call, std::as_bytes(std::span(own)), table);
      } catch (const error&) {
        // A rank that called something else instead has failed there, and will tell that it leaves the scope.
        over_ = group.broken() || running.engine().same_name_everywhere(true);
        throw;
      }
      const round agreed = judge(words, context, pass, running.engine());
      leader_ = agreed.live > 0 ? agreed.leader : leader_;
      return agreed;
    } catch (const usage_error&) {
      over_ = mark.entered();  // refused before it could take part: the others do not know
      throw;
    }
  }

  /// The ranks have come through what can only fail on all of them.
  void count_on_each_other() noexcept { over_ = false; }

  void begin_pass(bool averages) noexcept {
    under_way_ = true;
    averages_ = averages;
  }
  void end_pass() noexcept { under_way_ = false; }

  /// This rank's gradients hold what was never averaged, or no longer do.
  void set_left_over(bool left_over) noexcept { left_over_ = left_over; }
  [[nodiscard]] bool left_over() const noexcept { return left_over_; }

  /// The ranks have failed together, so none waits for another any more.
  [[nodiscard]] bool over() const noexcept { return over_; }
  [[nodiscard]] bool under_way() const noexcept { return under_way_; }
  [[nodiscard]] bool averages() const noexcept { return averages_; }
  /// The lowest rank that had data in the last pass.
  [[nodiscard]] int leader() const noexcept { return leader_; }
  [[nodiscard]] const join_options& options() const noexcept { return options_; }

 private:
  using word = std::array<std::uint8_t, 7>;
  static constexpr std::size_t plan_at = 0;
  static constexpr std::size_t options_begin = 1;  // those that all ranks must share
  static constexpr std::size_t options_end = 4;
  static constexpr std::size_t yields_at = 4;
  static constexpr std::size_t left_over_at = 5;
  static constexpr std::size_t steps_at = 6;  // it can use averages that come when it has no data

  /// All ranks have the same words, so all come to the same conclusion.
  [[nodiscard]] round judge(const std::vector<word>& words, const error_context& context, std::uint64_t pass,
                            const host_engine& engine) const {
    round agreed;
    const auto divisor = [&](std::size_t with_data, std::size_t with_rest) {
      return static_cast<int>(options_.divisor == divide_by::live_ranks ? with_data + with_rest : words.size());
    };
    std::vector<int> live;
    std::vector<int> ended;
    std::vector<int> left_over;  // of those: who has gradients to add all the same
    const auto disagree = [&](int first, int second, const std::string& what) {
      const auto called = [&](int rank) {
        return "rank " + std::to_string(rank) + " called " + engine.matching_call(rank);
      };
      throw mismatch_error(context, what + "; " + called(first) + ", " + called(second), first, second);
    };
    for (int rank = 0; rank < static_cast<int>(words.size()); ++rank) {
      const word& theirs = words[static_cast<std::size_t>(rank)];
      for (std::size_t option = options_begin; option < options_end; ++option) {
        if (theirs[option] != words[0][option]) {
          disagree(0, rank,
                   "the join_options differ: rank 0 has " + text_of_options(words[0]) + ", rank " +
                       std::to_string(rank) + " has " + text_of_options(theirs));
        }
      }
      const bool out = theirs[plan_at] == static_cast<std::uint8_t>(plan::out_of_data);
      (out ? ended : live).push_back(rank);
      if (out && theirs[left_over_at] != 0) {
        left_over.push_back(rank);
      }
    }
    if (live.empty()) {
      if (!left_over.empty()) {
        require_use(words, left_over, context);
        agreed.leader = leader_;
        agreed.averages = true;
        agreed.divisor = divisor(0, left_over.size());
      }
      return agreed;
    }
    const auto averages = [&](int rank) {
      return words[static_cast<std::size_t>(rank)][plan_at] == static_cast<std::uint8_t>(plan::averages);
    };
    const auto text_of_plan = [&](int rank) {
      return "rank " + std::to_string(rank) + (averages(rank) ? " averages its gradients" : " is inside no_sync");
    };
    const bool all_yield = std::all_of(live.begin(), live.end(), [&](int rank) {
      return !averages(rank) || words[static_cast<std::size_t>(rank)][yields_at] != 0;
    });
    const bool all_average = std::all_of(live.begin(), live.end(), averages);
    for (const int rank : live) {
      if (!all_yield && averages(rank) != averages(live.front())) {
        disagree(
            live.front(), rank,
            "in backward pass " + std::to_string(pass) + ' ' + text_of_plan(live.front()) + ", " + text_of_plan(rank));
      }
    }
    if (options_.throw_on_early_end && !ended.empty()) {
      const std::string text = engines::list_ranks(ended) + " ran out of data before backward pass " +
                               std::to_string(pass) + ", which " + engines::list_ranks(live) +
                               (live.size() == 1 ? " begins" : " begin");
      if (words[static_cast<std::size_t>(context.rank)][plan_at] == static_cast<std::uint8_t>(plan::out_of_data)) {
        throw usage_error(context, text);
      }
      throw peer_error(context, text, ended.front(), false);
    }
    agreed.live = static_cast<int>(live.size());
    agreed.leader = live.front();
    agreed.averages = all_average;
    agreed.divisor = divisor(live.size(), left_over.size());
    return agreed;
  }

  /// Gradients that are left over when all data is used up are of use only to an optimizer that steps once more, on
  /// the rank whose model will be everyone's.
  void require_use(const std::vector<word>& words, const std::vector<int>& left_over,
                   const error_context& context) const {
    if (words[static_cast<std::size_t>(leader_)][steps_at] != 0) {
      return;
    }
    const std::string text =
        "the data ended while " + engines::list_ranks(left_over) +
        " held gradients that were never averaged: let the last pass average (accumulate::step(true)), or give "
        "join_options::on_shadow, where the optimizer can step with their average";
    if (words[static_cast<std::size_t>(context.rank)][left_over_at] != 0) {
      throw usage_error(context, text);
    }
    throw peer_error(context, text, left_over.front(), false);
  }

  static std::string text_of_options(const word& options) {
    return std::string("divide_by::") +
           (options[1] == static_cast<std::uint8_t>(divide_by::live_ranks) ? "live_ranks" : "initial_world") +
           ", throw_on_early_end = " + (options[2] != 0 ? "true" : "false") +
           ", synchronize_final_model = " + (options[3] != 0 ? "true" : "false");
  }

  join_options options_;
  bool over_ = false;
  bool under_way_ = false;
  bool averages_ = false;
  bool left_over_ = false;
  int leader_ = 0;
};

}  // namespace hfcomm::detail
