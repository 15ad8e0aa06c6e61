// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <new>

#include <hfcomm/core/std_algorithm.hpp>
#include <hfcomm/engine/chooser.hpp>
#include <hfcomm/engine/shared_memory/memory.hpp>
#include <hfcomm/engine/shared_memory/steps.hpp>
#include <hfcomm/engine/shared_memory/ways/peer_memory.hpp>
#include <hfcomm/engine/shared_memory/ways/transfer_way.hpp>
#include <hfcomm/engine/shared_memory/ways/tuning_table.hpp>

namespace hfcomm::engines {

/// Finds the quickest way of a group's operations, for each kind and size class, while they are done.
///
/// In each operation that is measured every rank tells when it began, and what its last one of that class cost, in the
/// cell that it publishes anyway. All ranks see the same cells, so all know the same costs and choose the same ways
/// (see chooser). The cost of an operation is the slowest rank's, from when the last rank began it. No row of tries
/// begins that would probably make the tries' losses more than 20 ms and 1 % of the time since the first operation that
/// was measured. After a class's first 2000 operations, only one for each 500 us is measured outside of rows, but no
/// fewer than one of 64.
///
/// The way that leads goes into the process's table. The first operation of a class takes the way that leads for fewer
/// bytes, or the default way. In it the ranks propose what their tables have. Where all propose the same, that leads.
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
    is_measured_ = false;
    if (bytes == 0 || steps_.sizes().spans_machines() || steps_.step() == 0) {  // see peer_memory
      return {};
    }
    const int size_class = std::clamp<int>(static_cast<int>(std::bit_width(bytes)), least_class, most_class);
    class_state& one = classes_[static_cast<std::size_t>(kind)][static_cast<std::size_t>(size_class - least_class)];
    current_ = &one;
    bytes_ = bytes;
    may_use_nodes_ = may_use_nodes;
    use_ = {one.choice.leader(), -1};
    is_measured_ = one.is_due(bytes);
    if (is_measured_) {
      key_ = {steps_.size(), steps_.shares_cores(), kind, size_class};
      affordable_ = affordable_cost();
      if (one.has_proposals) {
        use_ = one.choice.next(affordable_, is_thorough_);
      } else {
        nearest_ = nearest(one);
        use_.candidate = nearest_ == nullptr ? default_way : nearest_->choice.leader();
        use_.candidate = use_.candidate == nodes_way && !may_use_nodes ? default_way : use_.candidate;
      }
      begin_ = now();
    }
    const transfer_way& way = transfer_ways[static_cast<std::size_t>(use_.candidate)];
    if (way.medium == transfer_medium::nodes && !may_use_nodes) {
      current_ = nullptr;
      is_measured_ = false;
      return use_.place < 0 ? transfer_way{} : transfer_ways[static_cast<std::size_t>(one.choice.leader())];
    }
    return way;
  }

  /// Writes what this rank tells the others into its cell of the next step.
  void report() {
    if (is_measured_) {
      write_report();
    }
  }

  /// Takes what the ranks told in the current step. `counts` is false where the operation did not go the chosen way, on
  /// all ranks: nothing is learned from it then.
  [[gnu::noinline]] void agree(bool counts = true) {
    if (!is_measured_) {
      if (current_ != nullptr && counts) {
        ++current_->unmeasured;
      }
      return;
    }
    class_state& one = *current_;
    use_cost cost = 0;
    all_began_ = 0;
    for (int rank = 0; rank < steps_.size(); ++rank) {
      const layout::tuning_report theirs = report_of(rank);
      all_began_ = std::max(all_began_, theirs.begin);
      cost = std::max(cost, theirs.cost == 0 ? unknown_cost : theirs.cost);
    }
    first_began_ = first_began_ == 0 ? all_began_ : first_began_;
    if (!one.has_proposals) {
      take_proposals(one);  // the operation also touches memory for the first time
      counts = false;
    } else {
      learn(one, cost);
    }
    is_measured_ = counts;
    one.pending = counts ? use_ : chooser::use();
    one.pending_bytes = bytes_;
    if (counts) {
      one.choice.start(use_, affordable_, one.unmeasured);
      one.unmeasured = 0;
    }
  }

  /// Ends the operation: it has done all that others wait for.
  void end() {
    if (is_measured_) {
      const std::uint64_t ended = now();
      const std::uint64_t taken = std::min<std::uint64_t>(ended - std::min(ended, all_began_), 1'000'000'000);
      current_->own_cost =
          static_cast<use_cost>(std::clamp<std::uint64_t>(taken * cost_units / bytes_, 1, unknown_cost / 8));
    }
  }

  /// Forgets the way by the kernel: all ranks have seen that one of them could not read some memory.
  [[gnu::cold]] void stop_reading() {
    peers_.stop_reading();
    is_measured_ = false;
    for (auto& kind : classes_) {
      for (class_state& one : kind) {
        if (one.has_proposals && one.choice.has(kernel_way)) {
          one.choice = one.choice.without(kernel_way, default_way);
          one.pending = {};
        }
      }
    }
  }

 private:
  static constexpr int least_class = std::bit_width(layout::small_slot_bytes);
  static constexpr int most_class = 25;  // 16 MiB and more
  static constexpr std::uint64_t most_loss_at_once = std::chrono::nanoseconds(std::chrono::milliseconds(20)).count();
  static constexpr std::uint64_t unlimited = std::numeric_limits<std::uint64_t>::max();
  static constexpr std::uint64_t cost_units = 100'000;  // of a nanosecond for each byte

  struct class_state {
    chooser choice;
    bool has_proposals = false;  // the ranks have proposed what their tables have, and `choice` has the ways
    bool stays = false;          // the leading way stays once it is settled
    bool is_fixed = false;       // the leading way stays
    chooser::use pending;        // the last one that was measured, whose cost is not known yet
    std::size_t pending_bytes = 0;
    use_cost own_cost = 0;    // of it
    unsigned unmeasured = 0;  // operations since then

    /// Returns whether the next operation, on `bytes`, is to be measured.
    [[nodiscard]] bool is_due(std::size_t bytes) const noexcept {
      constexpr std::uint64_t interval = std::uint64_t{500'000} * cost_units;
      return !is_fixed && (!has_proposals || unmeasured >= 63 || choice.is_curious() ||
                           (unmeasured + 1) * std::uint64_t{choice.cost()} * bytes >= interval);
    }
  };

  [[nodiscard]] static std::uint64_t now() {
    return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch() /
                                      std::chrono::nanoseconds(1));
  }

  [[nodiscard]] layout::tuning_report report_of(int rank) const {
    layout::tuning_report theirs;
    std::memcpy(&theirs, steps_.cell(rank, steps_.step()).payload + layout::report_offset, sizeof(theirs));
    return theirs;
  }

  [[gnu::cold]] void write_report() {
    layout::tuning_report mine{.begin = begin_, .cost = current_->own_cost};
    if (!current_->has_proposals) {
      mine.proposal = static_cast<std::uint8_t>(table_.find(key_) + 1);
      mine.mode = static_cast<std::uint8_t>(table_.mode());
      mine.can_read_all = peers_.can_read_all() ? 1 : 0;
      mine.shares_cores = steps_.shares_cores() ? 1 : 0;
    }
    current_->own_cost = 0;
    std::memcpy(steps_.cell(steps_.rank(), steps_.next()).payload + layout::report_offset, &mine, sizeof(mine));
  }

  /// Returns what tries may lose, as the cost of one operation. All ranks know the same times.
  [[nodiscard]] std::uint64_t affordable_cost() const {
    const std::uint64_t most = std::max(most_loss_at_once, (all_began_ - first_began_) / 100);
    return is_thorough_ ? unlimited : (most - std::min(loss_, most)) * cost_units / bytes_;
  }

  /// Returns the next class for fewer bytes that is being tuned; null where there is none.
  [[nodiscard]] const class_state* nearest(const class_state& one) const {
    const class_state* const first = classes_[static_cast<std::size_t>(key_.kind)].data();
    for (const class_state* near = &one; near != first;) {
      if ((--near)->has_proposals) {
        return near;
      }
    }
    return nullptr;
  }

  /// Returns the ways that make sense for what is being tuned, a bit for each. Of those that come to the same, because
  /// neither a slot nor the bytes are longer, only the shortest piece.
  [[nodiscard]] std::uint32_t suitable_ways(bool can_read_all) const {
    const std::size_t most = std::size_t{1} << key_.size_class;
    const auto ranks = static_cast<std::size_t>(steps_.size());
    const bool reduces = key_.kind >= tuned_operation::reduce;
    const bool has_parts = key_.kind == tuned_operation::scatter || key_.kind == tuned_operation::all_to_all;
    // Short pieces let one rank read while another one writes. Where all do both, they only cost steps.
    const bool flows_one_way = key_.kind == tuned_operation::broadcast || key_.kind == tuned_operation::gather ||
                               key_.kind == tuned_operation::scatter;
    const std::size_t readers = reduces ? ranks : has_parts ? ranks - 1 : 1;
    const bool can_read = can_read_all && most > layout::piece_bytes && key_.kind != tuned_operation::reduce &&
                          key_.kind != tuned_operation::narrow_reduce;
    std::uint32_t ways = 0;
    std::size_t last_chunk = 0;
    for (std::size_t number = 0; number < transfer_ways.size(); ++number) {
      const transfer_way& way = transfer_ways[number];
      const std::size_t chunk =
          std::min(steps_.sizes().chunk_bytes(readers, way.piece), reduces ? most : readers * most);
      const bool is_short = way.piece < layout::piece_bytes;
      last_chunk = is_longer(number) ? last_chunk : 0;
      bool suits = chunk != last_chunk && (!is_short || (flows_one_way && most <= 16 * way.piece));
      last_chunk = suits ? chunk : last_chunk;
      switch (way.medium) {
        case transfer_medium::kernel: suits = can_read; break;
        case transfer_medium::streamed:
        case transfer_medium::moved: suits = suits && detail::has_other_copies; break;
        case transfer_medium::nodes: suits = may_use_nodes_; break;
        case transfer_medium::slots: break;
      }
      ways |= suits ? std::uint32_t{1} << number : 0;
    }
    return ways;
  }
  /// Returns whether a way is the one before it with a longer piece.
  [[nodiscard]] static constexpr bool is_longer(std::size_t number) noexcept {
    return number != 0 && transfer_ways[number].medium == transfer_ways[number - 1].medium;
  }

  /// Takes the ranks' proposals.
  [[gnu::cold]] void take_proposals(class_state& one) {
    std::size_t proposal = report_of(0).proposal;  // a way's number and 1; 0: none
    bool all_agree = proposal - 1 < transfer_ways.size();
    bool is_off = false;
    bool is_brief = true;
    bool can_read_all = true;
    bool share_cores = false;
    is_thorough_ = true;
    for (int rank = 0; rank < steps_.size(); ++rank) {
      const layout::tuning_report theirs = report_of(rank);
      all_agree = all_agree && theirs.proposal == proposal;
      is_off = is_off || theirs.mode == static_cast<std::uint8_t>(tuning_mode::off);
      is_thorough_ = is_thorough_ && theirs.mode == static_cast<std::uint8_t>(tuning_mode::thorough);
      is_brief = is_brief && theirs.mode == static_cast<std::uint8_t>(tuning_mode::brief);
      can_read_all = can_read_all && theirs.can_read_all != 0;
      share_cores = share_cores || theirs.shares_cores != 0;
    }
    const std::uint32_t ways = suitable_ways(can_read_all);
    --proposal;
    while (all_agree && (ways >> proposal & 1) == 0 && is_longer(proposal)) {
      --proposal;
    }
    one.stays = !is_brief;
    if (is_off) {
      const int only = default_for_class(share_cores, ways);
      one.choice = chooser(1U << only, only);
      one.is_fixed = true;
    } else if (all_agree && (ways >> proposal & 1) != 0) {
      one.choice = chooser(is_brief ? ways : 1U << proposal, static_cast<int>(proposal), 1U << kernel_way);
      one.choice.trust();
      one.is_fixed = !is_brief;
    } else {
      const int likely = use_.candidate;
      one.choice = chooser(ways, (ways >> likely & 1) != 0 ? likely : default_way, 1U << kernel_way);
      if (nearest_ != nullptr) {
        one.choice.expect(nearest_->choice);
      }
    }
    one.has_proposals = true;
  }

  /// Returns the way where nothing is measured. The kernel copies the parts of a long all-to-all, all of which differ.
  [[nodiscard]] int default_for_class(bool share_cores, std::uint32_t ways) const {
    const std::size_t least = share_cores ? layout::piece_bytes : steps_.sizes().slot_bytes;
    const bool is_long = (std::size_t{1} << key_.size_class) > least;
    const bool by_kernel = key_.kind == tuned_operation::all_to_all && is_long && (ways >> kernel_way & 1) != 0;
    return by_kernel ? kernel_way : default_way;
  }

  /// Takes what the last operation of the class cost.
  [[gnu::cold]] void learn(class_state& one, use_cost cost) {
    const bool was_fresh = one.choice.is_fresh();
    const std::int64_t lost = one.choice.add(one.pending, cost) * static_cast<std::int64_t>(one.pending_bytes);
    loss_ = static_cast<std::uint64_t>(
        std::max<std::int64_t>(static_cast<std::int64_t>(loss_) + lost / static_cast<std::int64_t>(cost_units), 0));
    if (!was_fresh && one.choice.is_fresh() && one.choice.is_likely()) {
      const double microseconds =
          static_cast<double>(one.choice.cost()) * static_cast<double>(bytes_) / (1000.0 * cost_units);
      try {
        table_.set(key_, {one.choice.leader(), microseconds});
      } catch (const std::bad_alloc&) {
        // Later groups measure again. This rank has published a step and must not leave the others.
      }
      one.is_fixed = one.stays && one.choice.is_settled();
    }
  }

  const lockstep& steps_;
  peer_memory& peers_;
  tuning_table& table_;
  std::array<std::array<class_state, most_class - least_class + 1>, tuned_operation_names.size()> classes_;
  std::uint64_t loss_ = 0;    // nanoseconds that trying slower ways has cost so far
  bool is_thorough_ = false;  // what trying loses has no limit

  // The operation under way.
  class_state* current_ = nullptr;  // null: it does not count
  bool is_measured_ = false;
  bool may_use_nodes_ = false;
  tuning_key key_;
  std::size_t bytes_ = 0;
  chooser::use use_;
  const class_state* nearest_ = nullptr;  // for fewer bytes, where the class is new
  std::uint64_t affordable_ = 0;
  std::uint64_t begin_ = 0;
  std::uint64_t all_began_ = 0;
  std::uint64_t first_began_ = 0;  // when the first operation that was measured began
};

}  // namespace hfcomm::engines
