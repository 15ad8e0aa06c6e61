// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/core/error.hpp>
#include <hfcomm/core/plain_list.hpp>
#include <hfcomm/ddp/join_options.hpp>
#include <hfcomm/engine/call_text.hpp>
#include <hfcomm/engine/host_engine.hpp>

namespace hfcomm::detail {

enum class join_pass_kind : std::uint8_t { out_of_data, accumulates, averages };

/// The announcement of a rank of a join scope to the others before a backward pass. Exchanged as bytes.
struct join_announcement {
  join_pass_kind kind = join_pass_kind::out_of_data;
  // The following must be equal on all ranks.
  divide_by divisor = divide_by::initial_world;
  std::uint8_t throw_on_early_end = 0;
  std::uint8_t synchronize_final_model = 0;
  // The following may differ.
  std::uint8_t yields = 0;         ///< It accumulates instead of averaging where others accumulate.
  std::uint8_t has_left_over = 0;  ///< Its gradients hold sums that were never averaged.
  std::uint8_t has_on_shadow = 0;  ///< Its optimizer can step after a pass for which it has no data.
};
static_assert(sizeof(join_announcement) == 7);

/// Decides, from the announcements of all ranks, on the pass that they are about to make. All ranks have the same
/// announcements, so all reach the same agreement, or all throw.
class join_agreement {
 public:
  /// The pass that the ranks make.
  struct agreed_pass {
    int live = 0;           ///< Number of ranks that have data.
    int divisor = 0;        ///< Divisor of the sum of the gradients.
    int leader = 0;         ///< Lowest rank that has data, or had data to the last.
    bool averages = false;  ///< Whether the gradients are averaged.

    /// Returns whether no pass is needed: no rank has data, or gradients that were never averaged.
    [[nodiscard]] bool ends_scope() const noexcept { return live == 0 && !averages; }
  };

  /// `leader` is the lowest rank that had data in the pass before.
  join_agreement(std::span<const join_announcement> all, const join_options& options, int leader, std::uint64_t pass,
                 const error_context& context, const host_engine& engine)
      : all_(all), options_(options), leader_(leader), pass_(pass), context_(context), engine_(engine) {}

  agreed_pass reach() {
    for (int rank = 0; rank < static_cast<int>(all_.size()); ++rank) {
      require_equal_options(rank);
      const bool ended = of(rank).kind == join_pass_kind::out_of_data;
      (ended ? ended_ : live_).push_back(rank);
      if (ended && of(rank).has_left_over != 0) {
        left_over_.push_back(rank);
      }
    }
    return live_.empty() ? final_pass() : pass_with_data();
  }

 private:
  [[nodiscard]] const join_announcement& of(int rank) const { return all_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] bool averages(int rank) const { return of(rank).kind == join_pass_kind::averages; }

  [[nodiscard]] int divisor() const noexcept {
    return static_cast<int>(options_.divisor == divide_by::live_ranks ? live_.size() + left_over_.size() : all_.size());
  }

  /// No rank has data: averages the gradients that are left over, if there are any.
  [[nodiscard]] agreed_pass final_pass() const {
    if (left_over_.empty()) {
      return {};
    }
    require_left_over_used();
    return {.live = 0, .divisor = divisor(), .leader = leader_, .averages = true};
  }

  [[nodiscard]] agreed_pass pass_with_data() const {
    require_equal_kinds();
    if (options_.throw_on_early_end && !ended_.empty()) {
      throw_early_end();
    }
    return {.live = static_cast<int>(live_.size()),
            .divisor = divisor(),
            .leader = live_[0],
            .averages = std::all_of(live_.begin(), live_.end(), [&](int rank) { return averages(rank); })};
  }

  void require_equal_options(int rank) const {
    const auto& first = of(0);
    const auto& other = of(rank);
    if (other.divisor != first.divisor || other.throw_on_early_end != first.throw_on_early_end ||
        other.synchronize_final_model != first.synchronize_final_model) {
      throw_mismatch(0, rank,
                     concat({"the join_options differ: rank 0 has ", text_of_options(first), ", rank ", rank, " has ",
                             text_of_options(other)}));
    }
  }

  /// Ranks that average differ from ranks that accumulate, unless all that average yield.
  void require_equal_kinds() const {
    if (std::all_of(live_.begin(), live_.end(), [&](int rank) { return !averages(rank) || of(rank).yields != 0; })) {
      return;
    }
    const auto text_of_kind = [&](int rank) {
      return concat({"rank ", rank, averages(rank) ? " averages its gradients" : " is inside no_sync"});
    };
    for (const int rank : live_) {
      if (averages(rank) != averages(live_[0])) {
        throw_mismatch(live_[0], rank,
                       concat({"in backward pass ", pass_, ' ', text_of_kind(live_[0]), ", ", text_of_kind(rank)}));
      }
    }
  }

  [[noreturn]] void throw_mismatch(int first, int second, const std::string& what) const {
    const auto called = [&](int rank) { return concat({"rank ", rank, " called ", engine_.matching_call(rank)}); };
    throw_error<mismatch_error>(context_, {what, "; ", called(first), ", ", called(second)}, first, second);
  }

  [[noreturn]] void throw_early_end() const {
    const std::string text = concat({engines::list_ranks(ended_), " ran out of data before backward pass ", pass_,
                                     ", which ", engines::list_ranks(live_), live_.size() == 1 ? " begins" : " begin"});
    if (of(context_.rank).kind == join_pass_kind::out_of_data) {
      throw_error<usage_error>(context_, {text});
    }
    throw_error<peer_error>(context_, {text}, ended_[0], false);
  }

  /// Throws where gradients are left over after all data and one more optimizer step is impossible on the rank whose
  /// model is shared in the end.
  void require_left_over_used() const {
    if (of(leader_).has_on_shadow != 0) {
      return;
    }
    const std::string text =
        concat({"the data ended while ", engines::list_ranks(left_over_),
                " held gradients that were never averaged: let the last pass average (accumulate::step(true)), or give "
                "join_options::on_shadow, where the optimizer can step with their average"});
    if (of(context_.rank).has_left_over != 0) {
      throw_error<usage_error>(context_, {text});
    }
    throw_error<peer_error>(context_, {text}, left_over_[0], false);
  }

  static std::string text_of_options(const join_announcement& options) {
    return concat({"divide_by::", options.divisor == divide_by::live_ranks ? "live_ranks" : "initial_world",
                   ", throw_on_early_end = ", options.throw_on_early_end != 0 ? "true" : "false",
                   ", synchronize_final_model = ", options.synchronize_final_model != 0 ? "true" : "false"});
  }

  std::span<const join_announcement> all_;
  const join_options& options_;
  int leader_;
  std::uint64_t pass_;
  const error_context& context_;
  const host_engine& engine_;
  plain_list<int> live_;       // ranks that have data
  plain_list<int> ended_;      // ranks that have none
  plain_list<int> left_over_;  // ranks without data whose gradients were never averaged
};

}  // namespace hfcomm::detail
