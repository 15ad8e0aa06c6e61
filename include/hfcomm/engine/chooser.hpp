// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <limits>

#include <hfcomm/core/std_algorithm.hpp>

namespace hfcomm::engines {

/// The cost of doing something once, in any unit. A use that was held up counts as four of the leader's.
using use_cost = std::uint32_t;
inline constexpr use_cost unknown_cost = std::numeric_limits<use_cost>::max();

/// Finds the quickest of a few candidates while they are used, from what the uses cost, and goes on looking.
///
/// One candidate leads and is used. Now and then another one has a row of uses. The median of the row's last uses is
/// compared with medians of the leader's uses, from before the row and just after it, so that a busy moment hits both.
/// The mean of a candidate's ratios decides whether it leads. A row's first uses do not count: another candidate has
/// left the caches to them.
///
/// First each candidate has a row, but those that are expected to be much slower. Later one has the fewer rows the more
/// they lose, by themselves and in the leader's first uses after them. Before the second row that is a hundredth of the
/// uses, before the next two a two hundredth, and then a thousandth. It is a fiftieth where the leader has become
/// slower than the candidate was, and before the first row of a candidate that is expected to be much slower.
///
/// It knows nothing of what the candidates are, and counts in integers: whoever is told the same costs in the same
/// order chooses alike, also in a program that is compiled otherwise.
class chooser {
 public:
  static constexpr int most_candidates = 10;
  static constexpr int counted = 5;             ///< Uses of a row that count.
  static constexpr int uncounted = 2;           ///< Uses of a row before these.
  static constexpr int uncounted_if_slow = 10;  ///< Uses of a slow starter's row before these.
  static constexpr int first_uses = 13;         ///< Uses before the first row.

  /// One use.
  struct use {
    int candidate = -1;  ///< Negative: none.
    int place = -1;      ///< In the candidate's row; negative: it leads.
  };

  /// `candidates` has a bit for each, and `slow_starters` for those of them whose first uses cost more for longer.
  /// `leader` is used first.
  [[gnu::cold]] explicit chooser(std::uint32_t candidates = 1, int leader = 0, std::uint32_t slow_starters = 0) noexcept
      : candidates_(candidates), slow_starters_(slow_starters), leader_(leader) {}

  /// Expects what another chooser has found. It counts like a row, and candidates that are much slower are tried later.
  void expect(const chooser& like) noexcept {
    for (int number = 0; number < most_candidates; ++number) {
      const state& its = like.states_[number];
      states_[number] = {.ratio = its.ratio, .is_expected = its.rows != 0 || its.is_expected};
    }
  }
  /// Takes the leader for the quickest one, by a tenth, as if each other one had had a row.
  void trust() noexcept {
    for (state& one : states_) {
      one = {.ratio = even + even / 10, .rows = 1, .cost = unknown_cost, .lost = std::uint64_t{8} * even};
    }
  }
  /// Returns a chooser without one of the candidates, which has not tried anything yet. It has the same leader, or
  /// `instead` where that candidate led.
  [[nodiscard]] chooser without(int candidate, int instead) const noexcept {
    return chooser(candidates_ & ~(std::uint32_t{1} << candidate), leader_ == candidate ? instead : leader_,
                   slow_starters_);
  }

  [[nodiscard]] int leader() const noexcept { return leader_; }
  [[nodiscard]] bool has(int candidate) const noexcept { return (candidates_ >> candidate & 1) != 0; }
  /// Returns what the leader usually costs; unknown_cost where that is not known.
  [[nodiscard]] use_cost cost() const noexcept { return level_; }
  /// Returns whether each other candidate has been tried, or is taken for slower.
  [[nodiscard]] bool is_likely() const noexcept { return level_ != unknown_cost && has_tried(1, even + 1); }
  /// Returns whether each other candidate has been tried so often that it is rarely tried again.
  [[nodiscard]] bool is_settled() const noexcept { return has_tried(first_rows, most_ratio + 1); }
  /// Returns whether the leader has been measured since the last row.
  [[nodiscard]] bool is_fresh() const noexcept { return is_fresh_; }
  /// Returns whether the cost of the next use is needed. Otherwise a few of them suffice.
  [[nodiscard]] bool is_curious() const noexcept { return is_in_row_ || !is_fresh_ || spent_ < curious_uses; }

  /// Returns the next use. A row begins only where it will probably lose no more than `affordable`. `hurries` lets the
  /// rows follow one another.
  [[nodiscard, gnu::cold]] use next(std::uint64_t affordable, bool hurries) const noexcept {
    if (place_ >= 0) {
      return {trying_, place_};
    }
    const bool may_begin = !is_in_row_ && level_ != unknown_cost;
    for (int turn = 1; turn <= most_candidates && may_begin; ++turn) {
      const int number = (trying_ + turn) % most_candidates;
      if (is_other(number) && is_due(number, hurries) && loss_of(number) <= affordable) {
        return {number, 0};
      }
    }
    return {leader_, -1};
  }

  /// Takes note that what `next` has returned for that `affordable` is being done, after `unmeasured` uses of the
  /// leader whose cost nobody measures.
  void start(const use& done, std::uint64_t affordable, unsigned unmeasured = 0) noexcept {
    spent_ += unmeasured + 1;
    if (done.place < 0 || (done.place != 0 && place_ < 0)) {
      return;  // it leads, or its row has been ended
    }
    if (done.place == 0) {
      row_limit_ = std::min(affordable, most_uses_lost * level_);
      row_loss_ = 0;
      size_ = 0;
      is_fresh_ = false;
      is_in_row_ = true;
      left_cold_ = uncounted_of(leader_);
      trying_ = done.candidate;
    }
    place_ = done.place + 1 == row_length(done.candidate) ? -1 : done.place + 1;
  }

  /// Adds what a use has cost, in the order of the uses. Returns what it has lost against the leader: negative where it
  /// was quicker.
  [[gnu::cold]] std::int64_t add(const use& done, use_cost cost) noexcept {
    if (done.place < 0) {
      return done.candidate == leader_ && cost != unknown_cost ? add_leading(cost) : 0;
    }
    if (!is_in_row_) {
      return 0;
    }
    if (cost == unknown_cost) {
      end_row();
      return 0;
    }
    const std::int64_t lost = lose(cost);
    const bool gives_up = row_loss_ + lost > static_cast<std::int64_t>(row_limit_);  // the next one is under way
    if (done.place >= uncounted_of(done.candidate) || gives_up) {
      count(cost);
    }
    if (gives_up || done.place + 1 == row_length(done.candidate)) {
      state& its = states_[done.candidate];
      its.found = costs_[size_ / 2];
      its.since = spent_;
      set_lost(its);
      end_row();
    }
    return lost;
  }

 private:
  static constexpr std::uint32_t even = 4096;  // the ratio of equal costs
  static constexpr std::uint32_t most_ratio = 16 * even;
  static constexpr std::uint32_t first_rows = 4;
  static constexpr std::uint64_t curious_uses = 2000;
  static constexpr std::uint64_t most_uses_lost = 16;  // by a row: then it ends
  static constexpr std::uint32_t most_rows = 32;       // of which the mean is taken

  struct state {
    std::uint32_t ratio = even;  // of its cost to the leader's
    std::uint32_t rows = 0;
    bool is_expected = false;  // the ratio has another chooser's
    use_cost found = 0;        // in its last row, whose ratio is not known yet; 0: there is none
    use_cost cost = 0;         // in the last row whose ratio is known
    std::uint64_t lost = 0;    // by that row, as a ratio to the leader's cost
    std::uint64_t since = 0;   // uses before that row ended
  };

  [[nodiscard]] bool is_other(int number) const noexcept { return number != leader_ && has(number); }
  [[nodiscard]] bool has_tried(std::uint32_t rows, std::uint32_t slower) const noexcept {
    for (int number = 0; number < most_candidates; ++number) {
      if (is_other(number) && states_[number].rows < rows && states_[number].ratio < slower) {
        return false;
      }
    }
    return true;
  }
  [[nodiscard]] int uncounted_of(int number) const noexcept {
    return (slow_starters_ >> number & 1) != 0 ? uncounted_if_slow : uncounted;
  }
  [[nodiscard]] int row_length(int number) const noexcept { return uncounted_of(number) + counted; }

  /// Returns what a row will probably lose, as a ratio to the leader's cost: what the last one lost, or what its ratio
  /// tells, if that is more, because an earlier leader was slower. Before the first row, a candidate that is slower by
  /// up to `slower` loses nothing.
  [[nodiscard]] std::uint64_t uses_lost(int number, std::uint32_t slower) const noexcept {
    const state& its = states_[number];
    const std::uint64_t excess = its.ratio - std::min(its.ratio, even + (its.rows == 0 ? slower : 0));
    const std::uint64_t whole_row = static_cast<std::uint64_t>(row_length(number)) * excess;
    return std::max(its.lost, its.rows == 0 ? whole_row : std::min(whole_row, most_uses_lost * even));
  }
  /// Returns what a row will probably lose, as a cost. Two uses are for the caches.
  [[nodiscard]] std::uint64_t loss_of(int number) const noexcept {
    return level_ * (uses_lost(number, 0) + std::uint64_t{2} * even) / even;
  }
  /// Returns whether it is time for a row. The first one comes at once, unless the candidate is taken for slower by
  /// more than a fourth.
  [[nodiscard]] bool is_due(int number, bool hurries) const noexcept {
    const state& one = states_[number];
    if (one.found != 0 || (one.rows != 0 && !is_fresh_)) {
      return false;
    }
    // It may lead where the leader has become slower since then.
    const bool may_lead = one.rows == 0 || one.cost < level_ - level_ / 8;
    const std::uint64_t uses_for_each = may_lead ? 50 : one.rows == 1 ? 100 : one.rows < first_rows ? 200 : 1000;
    return hurries ? one.rows < first_rows : (spent_ - one.since) * even >= uses_lost(number, even / 4) * uses_for_each;
  }

  /// Takes note of what a use has cost more than the leader's. One that was held up counts as four.
  std::int64_t lose(use_cost cost) noexcept {
    const std::int64_t lost = std::min(std::int64_t{cost}, 4 * std::int64_t{level_}) - level_;
    row_loss_ += lost;
    return lost;
  }
  void set_lost(state& one) const noexcept {
    one.lost = static_cast<std::uint64_t>(std::max<std::int64_t>(row_loss_ * even / level_, even / 4));
  }
  void end_row() noexcept {
    place_ = -1;
    is_in_row_ = false;
    size_ = 0;
  }

  /// Adds a cost to those that count.
  void count(use_cost cost) noexcept {
    int place = size_++;
    for (; place > 0 && costs_[place - 1] > cost; --place) {
      costs_[place] = costs_[place - 1];
    }
    costs_[place] = std::max<use_cost>(cost, 1);
  }
  /// Adds a cost of the leader, whose first ones after a row are a part of what that loses.
  std::int64_t add_leading(use_cost cost) noexcept {
    if (left_cold_ > 0) {
      --left_cold_;
      const std::int64_t lost = level_ == unknown_cost ? 0 : lose(cost);
      if (states_[trying_].found != 0) {
        set_lost(states_[trying_]);
      }
      return lost;
    }
    count(cost);
    if (size_ == counted) {
      take_level(costs_[counted / 2]);
    }
    return 0;
  }

  /// Takes what the leader costs now.
  [[gnu::cold]] void take_level(use_cost now) noexcept {
    size_ = 0;
    is_fresh_ = true;
    if (level_ == unknown_cost) {
      level_ = now;
      return;
    }
    slow_ = now / 2 > level_ ? slow_ + 1 : 0;
    if (slow_ == 3) {  // such as after the host has moved a virtual machine's cores
      *this = chooser(candidates_, leader_, slow_starters_);
      level_ = now;
    }
    if (slow_ != 0) {
      is_fresh_ = false;
      return;
    }
    level_ = static_cast<use_cost>((std::uint64_t{level_} + now) / 2);  // during the rows
    int best = leader_;
    for (int number = 0; number < most_candidates; ++number) {
      state& its = states_[number];
      if (its.found != 0) {
        add_ratio(its, bounded(its.found * std::uint64_t{even} / level_));
        its.cost = its.found;
        its.found = 0;
        best = its.ratio < (best == leader_ ? even : states_[best].ratio) ? number : best;
      }
    }
    if (best != leader_) {
      lead(best);
    }
  }

  [[nodiscard]] static std::uint32_t bounded(std::uint64_t ratio) noexcept {
    return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(ratio, 1, most_ratio));
  }
  /// Adds a row's ratio to the mean. What is expected counts as a row. That and the first row, for which memory may not
  /// have been ready, do not count where the next one is far from them.
  static void add_ratio(state& one, std::uint32_t ratio) noexcept {
    const std::uint32_t distance = std::max(one.ratio, ratio) - std::min(one.ratio, ratio);
    const bool is_far = one.rows <= 1 && distance > even / 8;
    one.is_expected = one.is_expected && !is_far;
    const std::uint32_t before = is_far ? 0 : std::min(one.rows + (one.is_expected ? 1 : 0), most_rows - 1);
    one.ratio = (one.ratio * before + ratio) / (before + 1);
    ++one.rows;
  }

  void lead(int number) noexcept {
    const std::uint64_t to_old = states_[number].ratio;
    states_[leader_] = states_[number];
    states_[leader_].ratio = even;
    states_[leader_].cost = level_;
    for (state& one : states_) {
      const bool is_known = one.rows != 0 || one.is_expected;
      one.ratio = is_known ? bounded(one.ratio * std::uint64_t{even} / to_old) : one.ratio;
    }
    level_ = std::max<use_cost>(static_cast<use_cost>(level_ * to_old / even), 1);
    leader_ = number;
    left_cold_ = uncounted_of(number);
    is_fresh_ = false;
  }

  std::uint32_t candidates_;
  std::uint32_t slow_starters_;
  int leader_;
  use_cost level_ = unknown_cost;         // of the leader
  bool is_fresh_ = false;                 // measured since the last row
  int slow_ = 0;                          // so many times in a row it was more than twice as high
  int left_cold_ = first_uses - counted;  // so many of the leader's next uses do not count
  int trying_ = 0;                        // whose row is under way, or was the last
  int place_ = -1;                        // of the next use in the row; negative: there is none
  bool is_in_row_ = false;                // costs of the row are still to come
  int size_ = 0;                          // costs that count
  use_cost costs_[counted] = {};          // sorted
  std::int64_t row_loss_ = 0;
  std::uint64_t row_limit_ = 0;
  std::uint64_t spent_ = 0;  // uses
  state states_[most_candidates];
};

}  // namespace hfcomm::engines
