// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>

#include <hfcomm/core/std_algorithm.hpp>
#include <hfcomm/engine/shared_memory/memory.hpp>
#include <hfcomm/engine/shared_memory/steps.hpp>
#include <hfcomm/engine/shared_memory/ways/choice_watch.hpp>
#include <hfcomm/engine/shared_memory/ways/peer_memory.hpp>
#include <hfcomm/engine/shared_memory/ways/transfer_way.hpp>
#include <hfcomm/engine/shared_memory/ways/tuning_table.hpp>

namespace hfcomm::engines {

/// Finds the quickest way of a group's operations, for each kind and size class, in the group's first operations.
///
/// In each operation every rank tells when it began, and what its last one of that class cost, in the cell that it
/// publishes anyway. All ranks see the same cells, so all know the same costs and try the same ways. Each is tried
/// several times in a row, and the first of these do not count. Ways that turn out much slower are left out. The cost
/// of an operation is the slowest rank's, from when the last rank began it. While what the tries have lost is more than
/// 20 ms and 2 % of the time since the first operation that was measured, slower ways wait.
///
/// A chosen way is watched. All are tried again when it has become slow, and from time to time (see choice_watch).
///
/// A choice goes into the process's table. The first operation of a class takes the choice for fewer bytes, or the
/// default way. In it the ranks propose what their tables have. Where all propose the same, that is chosen.
///
/// An operation calls `begin`, `report` before it publishes its first step, `agree` once that is checked, and `end`.
class tuner {
 public:
  /// Throws usage_error where HFCOMM_TUNING names a file that is no table.
  tuner(const lockstep& steps, peer_memory& peers) : steps_(steps), peers_(peers), table_(tuning_table::of_process()) {}

  /// Starts an operation on `bytes`, the same on all ranks, which none of them leaves early. With 0 bytes nothing is
  /// measured. `may_use_nodes`, the same on all, allows for the chain of NUMA nodes. Returns its way.
  [[nodiscard]] transfer_way begin(tuned_operation kind, std::size_t bytes, bool may_use_nodes = false) {
    current_ = nullptr;
    watched_ = nullptr;
    may_use_nodes_ = may_use_nodes;
    if (bytes == 0 || steps_.sizes().spans_machines() || steps_.step() == 0) {  // see peer_memory
      return {};
    }
    const int size_class = std::clamp<int>(static_cast<int>(std::bit_width(bytes)), least_class, most_class);
    class_state& one = classes_[static_cast<std::size_t>(kind)][static_cast<std::size_t>(size_class - least_class)];
    bytes_ = bytes;
    if (one.chosen != none) {
      way_ = one.chosen;
      if (transfer_ways[way_].medium == transfer_medium::nodes && !may_use_nodes) {
        return {};
      }
      watched_ = is_brief_ ? &one : nullptr;
      if (!is_brief_ || !one.watch.is_due(bytes)) {
        return transfer_ways[way_];
      }
    }
    current_ = &one;
    key_ = {steps_.size(), steps_.shares_cores(), kind, size_class};
    begin_ = now();
    if (one.chosen == none) {
      choose_try(one);
    }
    return transfer_ways[way_];
  }

  /// Writes what this rank tells the others into its cell of the next step.
  void report() {
    if (current_ == nullptr) {
      return;
    }
    layout::tuning_report mine{.begin = begin_, .cost = current_->own_cost};
    if (!current_->has_proposals) {
      const auto known = table_.find(key_);
      mine.proposal = static_cast<std::uint8_t>(known ? number_of(*known) + 1 : 0);
      mine.mode = static_cast<std::uint8_t>(table_.mode());
      mine.can_read_all = peers_.can_read_all() ? 1 : 0;
      mine.shares_cores = steps_.shares_cores() ? 1 : 0;
    }
    current_->own_cost = 0;
    std::memcpy(steps_.cell(steps_.rank(), steps_.next()).payload + layout::report_offset, &mine, sizeof(mine));
  }

  /// Takes what the ranks told in the current step. `counts` is false where the operation did not go the chosen way, on
  /// all ranks: nothing is learned from it then.
  void agree(bool counts = true) {
    if (watched_ != nullptr && counts) {
      watched_->watch.count(bytes_);
    }
    if (current_ == nullptr) {
      return;
    }
    class_state& one = *current_;
    byte_cost cost = 0;
    all_began_ = 0;
    for (int rank = 0; rank < steps_.size(); ++rank) {
      const layout::tuning_report theirs = report_of(rank);
      all_began_ = std::max(all_began_, theirs.begin);
      cost = std::max(cost, theirs.cost == 0 ? unknown_cost : theirs.cost);
    }
    first_began_ = first_began_ == 0 ? all_began_ : first_began_;
    if (one.chosen != none) {
      if (one.watch.add_cost(cost)) {
        begin_again(one);
      }
      current_ = counts && one.chosen != none ? current_ : nullptr;
      return;
    }
    const bool is_first = !one.has_proposals;  // it also touches memory for the first time
    if (is_first) {
      take_proposals(one);
    } else if (one.pending != none) {
      learn(one, one.pending, cost);
    }
    if (!counts) {
      current_ = nullptr;
      return;
    }
    if (is_last_ && one.chosen == none) {
      choose(one);
    }
    if (one.chosen != none) {
      current_ = nullptr;
      return;
    }
    if (!is_first) {
      one.pending = way_;
      one.pending_is_try = is_try_;
      one.pending_bytes = bytes_;
      one.tries[way_] = static_cast<std::uint8_t>(one.tries[way_] + (is_try_ ? 1 : 0));
    }
  }

  /// Ends the operation: it has done all that others wait for.
  void end() {
    if (current_ != nullptr) {
      const std::uint64_t ended = now();
      const std::uint64_t taken = ended - std::min(ended, all_began_);
      current_->own_cost =
          static_cast<byte_cost>(std::clamp<std::uint64_t>(taken * 1000 / bytes_, 1, unknown_cost - 1));
    }
  }

  /// Forgets the way by the kernel: all ranks have seen that one of them could not read some memory.
  void stop_reading() {
    peers_.stop_reading();
    current_ = nullptr;
    can_read_all_ = false;
    for (auto& kind : classes_) {
      for (class_state& one : kind) {
        if (one.chosen != none && transfer_ways[one.chosen].medium == transfer_medium::kernel) {
          one.chosen = default_way;
          one.watch = choice_watch();
          one.own_cost = 0;
        }
      }
    }
  }

 private:
  static constexpr int least_class = std::bit_width(layout::small_slot_bytes);
  static constexpr int most_class = 25;  // 16 MiB and more
  static constexpr std::uint64_t most_loss_at_once = std::chrono::nanoseconds(std::chrono::milliseconds(20)).count();

  static constexpr std::size_t none = transfer_ways.size();  // no way; optionals would cost each program 15 functions

  struct class_state {
    class_state() { costs.fill(unknown_cost); }

    std::size_t chosen = none;
    std::size_t before = none;   // what was chosen until all ways are tried again
    bool has_proposals = false;  // the ranks have proposed what their tables have
    std::size_t pending = none;  // the way of the last operation, whose cost is not known yet
    bool pending_is_try = false;
    std::size_t pending_bytes = 0;
    byte_cost own_cost = 0;  // of it
    std::array<byte_cost, transfer_ways.size()> costs;
    std::array<std::uint8_t, transfer_ways.size()> tries{};
    choice_watch watch;  // of what is chosen
  };

  [[nodiscard]] static std::uint64_t now() {
    return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch() /
                                      std::chrono::nanoseconds(1));
  }
  [[nodiscard]] static std::size_t number_of(const transfer_way& way) {
    return static_cast<std::size_t>(std::find(transfer_ways.begin(), transfer_ways.end(), way) - transfer_ways.begin());
  }

  [[nodiscard]] layout::tuning_report report_of(int rank) const {
    layout::tuning_report theirs;
    std::memcpy(&theirs, steps_.cell(rank, steps_.step()).payload + layout::report_offset, sizeof(theirs));
    return theirs;
  }

  /// Returns whether a way makes sense for what is being tuned.
  [[nodiscard]] bool suits(std::size_t way) const {
    const transfer_way& one = transfer_ways[way];
    const bool is_long = (std::size_t{1} << key_.size_class) > layout::piece_bytes;
    switch (one.medium) {
      case transfer_medium::kernel: return can_read_all_ && is_long && key_.kind != tuned_operation::reduce;
      case transfer_medium::streamed:
        if (!detail::has_streaming_stores) {
          return false;
        }
        break;
      case transfer_medium::nodes: return may_use_nodes_;
      case transfer_medium::slots: break;
    }
    return is_long || one.piece == layout::piece_bytes;
  }

  /// Takes the ranks' proposals.
  void take_proposals(class_state& one) {
    one.has_proposals = true;
    const std::uint8_t proposal = report_of(0).proposal;
    bool all_agree = proposal != 0;
    bool is_off = false;
    bool share_cores = false;
    is_thorough_ = true;
    is_brief_ = true;
    can_read_all_ = true;
    for (int rank = 0; rank < steps_.size(); ++rank) {
      const layout::tuning_report theirs = report_of(rank);
      all_agree = all_agree && theirs.proposal == proposal;
      is_off = is_off || theirs.mode == static_cast<std::uint8_t>(tuning_mode::off);
      is_thorough_ = is_thorough_ && theirs.mode == static_cast<std::uint8_t>(tuning_mode::thorough);
      is_brief_ = is_brief_ && theirs.mode == static_cast<std::uint8_t>(tuning_mode::brief);
      can_read_all_ = can_read_all_ && theirs.can_read_all != 0;
      share_cores = share_cores || theirs.shares_cores != 0;
    }
    if (is_off) {
      one.chosen = default_for_class(share_cores);
    } else if (all_agree && proposal <= transfer_ways.size() && suits(proposal - std::size_t{1})) {
      one.chosen = proposal - std::size_t{1};
    }
  }

  /// Returns the way where nothing is measured. The kernel copies the parts of a long all-to-all, all of which differ.
  [[nodiscard]] std::size_t default_for_class(bool share_cores) const {
    constexpr std::size_t by_kernel = 2;
    static_assert(transfer_ways[by_kernel].medium == transfer_medium::kernel);
    const std::size_t least = share_cores ? layout::piece_bytes : steps_.sizes().slot_bytes;
    const bool is_long = (std::size_t{1} << key_.size_class) > least;
    return key_.kind == tuned_operation::all_to_all && is_long && suits(by_kernel) ? by_kernel : default_way;
  }

  /// Takes what the last operation of the class cost. Tries that do not count only tell whether a way is hopeless.
  void learn(class_state& one, std::size_t way, byte_cost cost) {
    const bool is_first_counted = one.pending_is_try && one.tries[way] == uncounted_tries + 1;
    one.costs[way] = is_first_counted && cost != unknown_cost ? cost : std::min(one.costs[way], cost);
    one.pending = none;
    if (const std::uint64_t best = best_cost(one); one.pending_is_try && cost != unknown_cost && cost > best) {
      // A rank that was held up by something else is no loss.
      loss_ += nanoseconds_of(std::min<std::uint64_t>(cost - best, 3 * best), one.pending_bytes);
    }
  }

  /// Lets all ways be tried again. The chosen one is used in the meantime.
  static void begin_again(class_state& one) {
    const std::size_t chosen = one.chosen;
    one = class_state();
    one.has_proposals = true;
    one.before = chosen;
  }

  /// Chooses the way of an operation: the one to try next, or where there is none to try now, the best one.
  void choose_try(const class_state& one) {
    way_ = best_way(one);
    is_last_ = false;
    is_try_ = false;
    const std::uint64_t best = best_cost(one);
    if (!one.has_proposals || best == unknown_cost) {
      return;  // a cost is known one operation later
    }
    const bool is_in_row = one.pending != none && one.pending_is_try && one.tries[one.pending] < tries_of_each;
    if (is_in_row && suits(one.pending) && !is_hopeless(one, one.pending, best)) {
      is_try_ = true;
      way_ = one.pending;
      return;
    }
    is_last_ = !is_in_row;
    for (std::size_t way = 0; way < transfer_ways.size(); ++way) {
      if (one.tries[way] < tries_of_each && suits(way) && !is_hopeless(one, way, best)) {
        is_last_ = false;
        if (can_afford(one, way, best)) {
          is_try_ = true;
          way_ = way;
          return;
        }
      }
    }
  }

  /// Returns whether a way is too slow to be tried, or to be tried again. The first tries may take longer. Where a way
  /// takes too long, longer pieces cannot make up for it.
  [[nodiscard]] bool is_hopeless(const class_state& one, std::size_t way, std::uint64_t best) const {
    const auto takes_too_long = [&](std::size_t number) {
      return one.costs[number] != unknown_cost && one.costs[number] > 2 * best + best / 2;
    };
    const bool has_longer_pieces = way != 0 && transfer_ways[way - 1].medium == transfer_ways[way].medium;
    return !is_thorough_ &&
           (takes_too_long(way) || (one.costs[way] == unknown_cost && has_longer_pieces && takes_too_long(way - 1)));
  }

  /// Returns whether a row of tries stays within what all tries may lose. All ranks know the same times.
  [[nodiscard]] bool can_afford(const class_state& one, std::size_t way, std::uint64_t best) const {
    const std::uint64_t cost = one.costs[way];
    const std::uint64_t worse = cost == unknown_cost ? best / 2 : cost - std::min(cost, best);
    return is_thorough_ || worse == 0 ||
           loss_ + tries_of_each * nanoseconds_of(worse, bytes_) <=
               std::max(most_loss_at_once, (all_began_ - first_began_) / 50);
  }

  /// Returns the quickest way that is known. Where no cost is known yet, it is the earlier choice, or the one for fewer
  /// bytes.
  [[nodiscard]] std::size_t best_way(const class_state& one) const {
    const std::uint64_t best = best_cost(one);
    if (best == unknown_cost) {
      if (one.before != none && suits(one.before)) {
        return one.before;
      }
      const auto& kind = classes_[static_cast<std::size_t>(key_.kind)];
      const class_state* smaller = &one;
      while (smaller != kind.data() && smaller->chosen == none) {
        --smaller;
      }
      return smaller->chosen != none && suits(smaller->chosen) ? smaller->chosen : default_way;
    }
    std::size_t found = default_way;
    std::uint64_t least = unknown_cost;
    for (std::size_t way = 0; way < transfer_ways.size(); ++way) {
      if (const std::uint64_t cost = comparable_cost(one, way); suits(way) && cost < least) {
        least = cost;
        found = way;
      }
    }
    return found;
  }

  /// Returns the cost by which a way is compared with others. Ordinary stores count a fifth more, because how long they
  /// take depends most on which cores the ranks have, and a virtual machine's cores move.
  [[nodiscard]] static std::uint64_t comparable_cost(const class_state& one, std::size_t way) {
    const std::uint64_t cost = one.costs[way];
    const transfer_medium medium = transfer_ways[way].medium;
    const bool stores_past_caches = medium == transfer_medium::streamed || medium == transfer_medium::kernel;
    return cost == unknown_cost || stores_past_caches ? cost : cost + cost / 5;
  }

  /// Returns the lowest cost of the ways that suit.
  [[nodiscard]] std::uint64_t best_cost(const class_state& one) const {
    std::uint64_t best = unknown_cost;
    for (std::size_t way = 0; way < transfer_ways.size(); ++way) {
      best = suits(way) ? std::min<std::uint64_t>(best, one.costs[way]) : best;
    }
    return best;
  }

  void choose(class_state& one) {
    const std::size_t way = best_way(one);
    one.chosen = way;
    one.watch = choice_watch(one.costs[way]);
    const double microseconds =
        one.costs[way] == unknown_cost ? 0 : static_cast<double>(nanoseconds_of(one.costs[way], bytes_)) / 1000;
    try {
      table_.set(key_, {transfer_ways[way], microseconds});
    } catch (const std::bad_alloc&) {
      // Later groups measure again. This rank has published a step and must not leave the others.
    }
  }

  const lockstep& steps_;
  peer_memory& peers_;
  tuning_table& table_;
  std::array<std::array<class_state, most_class - least_class + 1>, tuned_operation_names.size()> classes_;
  std::uint64_t loss_ = 0;     // nanoseconds that trying slower ways has cost so far
  bool can_read_all_ = false;  // every rank can read the memory of all others
  bool is_thorough_ = false;   // what trying loses has no limit
  bool is_brief_ = false;      // what is chosen is watched

  // The operation under way.
  class_state* current_ = nullptr;  // null: nothing is measured
  class_state* watched_ = nullptr;  // null: nothing is chosen, or its choice stays
  tuning_key key_;
  std::size_t bytes_ = 0;
  std::size_t way_ = default_way;
  bool is_try_ = false;
  bool is_last_ = false;  // the class is chosen in it
  bool may_use_nodes_ = false;
  std::uint64_t begin_ = 0;
  std::uint64_t all_began_ = 0;
  std::uint64_t first_began_ = 0;  // when the first operation that was measured began
};

}  // namespace hfcomm::engines
