// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <hfcomm/engine/hierarchical/cell_batch.hpp>
#include <hfcomm/engine/hierarchical/frame.hpp>
#include <hfcomm/engine/hierarchical/frame_sender.hpp>
#include <hfcomm/engine/hierarchical/message_mirror.hpp>
#include <hfcomm/engine/hierarchical/mirrored_group.hpp>
#include <hfcomm/engine/hierarchical/records.hpp>
#include <hfcomm/engine/shared_memory/memory.hpp>
#include <hfcomm/machine/roster.hpp>
#include <hfcomm/machine/shared_segment.hpp>

namespace hfcomm::engines {

/// One machine's copy of the memory of a group with ranks on several machines. Its agent sends what this machine's
/// ranks write, and writes what comes for the ranks of other machines. So all algorithms of the shared-memory engine,
/// and its error texts, hold across machines.
///
/// Why a cell or a slot may be sent straight from where it is: a rank publishes step s only after a rank of every
/// machine has published s - 2, and that one has seen the rank's step s - 4 before. So s - 4, whose place s takes, has
/// arrived everywhere.
///
/// Not thread-safe.
class group_mirror {
 public:
  /// `members` are the ranks' indices into the job's roster, `machine_of` the machine of each of those.
  group_mirror(std::uint64_t id, const std::vector<int>& members, const std::vector<int>& machine_of, int self,
               std::shared_ptr<rendezvous::shared_segment> segment)
      : group_(id, members, machine_of, self, std::move(segment)), sent_(members.size()) {
    group_.memory().header().number = id;
  }
  group_mirror(const group_mirror&) = delete;
  group_mirror& operator=(const group_mirror&) = delete;

  [[nodiscard]] std::uint64_t id() const noexcept { return group_.id(); }
  /// The group's bit on the machine's board.
  void set_board_index(std::uint32_t index) noexcept { group_.memory().header().board_index = index; }
  [[nodiscard]] std::uint32_t board_index() const noexcept { return group_.memory().header().board_index; }
  /// Returns whether all ranks of this machine have left the group.
  [[nodiscard]] bool is_over() const {
    return std::all_of(group_.local_ranks().begin(), group_.local_ranks().end(),
                       [&](int rank) { return sent_of(rank).departed != 0; });
  }

  /// Sends what has changed. Returns whether there was anything.
  bool collect(frame_sender& out) {
    bool any = send_messages(out);
    if (const std::uint64_t step = group_.memory().header().changes.asked.exchange(0); step != 0) {
      group_.send_to_all(out, group_.frame_of(frame_kind::question, group_.local_ranks().front(), step));
    }
    for_each_marked(group_.memory().header().changes.steps, [&](int rank) {
      any = true;
      send_steps(out, rank);
    });
    send_cells(out);
    return any;
  }

  /// Sends the steps of this machine's ranks that have not been sent.
  void send_quiet_steps(frame_sender& out) {
    for (const int rank : group_.local_ranks()) {
      send_steps(out, rank);
    }
    send_cells(out);
  }

  /// Sends what changes rarely, and is only read for error texts and after a hang.
  void send_rare_changes(frame_sender& out) {
    if (are_quiet()) {
      send_quiet_steps(out);
    }
    for (const int rank : group_.local_ranks()) {
      sent_state& sent = sent_of(rank);
      messages_.send_last_call(out, rank);
      const auto board = device_board_copy::of(group_.memory().block(rank).devices);
      if (!(board == sent.board)) {
        sent.board = board;
        group_.send_copy_to_all(out, group_.frame_of(frame_kind::device_board, rank, 0),
                                std::as_bytes(std::span(&board, 1)));
      }
    }
  }

  /// Returns the record of a loss that this machine's ranks propose, once.
  [[nodiscard]] std::optional<loss_record> take_proposal() {
    const layout::break_record& proposed = group_.memory().header().proposed;
    if (has_proposed_ || !proposed.is_complete()) {
      return std::nullopt;
    }
    has_proposed_ = true;
    return loss_record::of(group_.id(), proposed);
  }

  /// Lets `take_proposal` return its record once more.
  void propose_again() noexcept { has_proposed_ = false; }

  /// Breaks the group with the record that all machines get.
  void break_with(const loss_record& why) {
    layout::break_record& lost = group_.memory().header().lost;
    std::uint32_t state = layout::break_record::whole;
    if (lost.state.compare_exchange_strong(state, layout::break_record::written_by(0))) {
      lost.write(std::clamp(why.culprit, -1, group_.size() - 1), why.missing, why.by_exception, why.text);
      group_.memory().wake_all();
    }
  }

  /// Wakes all ranks: how another rank ended has become known.
  void wake_all() const { group_.memory().wake_all(); }

  /// Returns where the payload of a frame goes; empty where `apply` takes it. Nothing where the frame cannot be right.
  [[nodiscard]] std::span<std::byte> place_for(const frame& what) const {
    if (what.kind == frame_kind::slot_part) {
      return {group_.memory().slot(what.rank, what.index) + what.offset, what.bytes};
    }
    if (what.kind == frame_kind::message_part) {
      return {group_.memory().message_slot(what.rank, what.value) + what.offset, what.bytes};
    }
    return {};
  }

  /// Returns whether a machine may send this frame.
  [[nodiscard]] bool is_valid(int machine, const frame& what) const {
    if (what.rank < 0 || what.rank >= group_.size()) {
      return false;
    }
    const layout::dimensions& sizes = group_.memory().sizes();
    switch (what.kind) {
      case frame_kind::answer: return group_.is_local(what.rank) && what.index < sizes.envelopes();
      case frame_kind::slot_part:
        return group_.machine_of(what.rank) == machine && fits(what.offset, what.bytes, slot_end());
      case frame_kind::message_part:
        return group_.machine_of(what.rank) == machine && fits(what.offset, what.bytes, sizes.message_slot_bytes) &&
               what.index < sizes.envelopes();
      case frame_kind::site:
      case frame_kind::message_site:
        return group_.machine_of(what.rank) == machine && what.index < layout::site_count &&
               what.bytes == sizeof(layout::site_text);
      case frame_kind::offer: return group_.machine_of(what.rank) == machine && what.index < sizes.envelopes();
      case frame_kind::device_board:
        return group_.machine_of(what.rank) == machine && what.bytes == sizeof(device_board_copy);
      default: return group_.machine_of(what.rank) == machine;
    }
  }

  /// Writes what has come from a machine. `payload` is where place_for said.
  void apply(int machine, const frame& what, std::span<const std::byte> payload) {
    layout::rank_block& block = group_.memory().block(what.rank);
    switch (what.kind) {
      case frame_kind::slot_part: break;
      case frame_kind::cells: apply_cells(machine, what); break;
      case frame_kind::site: mirrored_group::write_site(block.sites[what.index], payload); break;
      case frame_kind::message_site: mirrored_group::write_site(block.messages.sites[what.index], payload); break;
      case frame_kind::question: {
        auto& wanted = group_.memory().header().changes.wanted;
        wanted.store(std::max(wanted.load(), what.index));
        break;
      }
      case frame_kind::failure:
        group_.memory().write_failure(what.rank, what.index, mirrored_group::text_of(payload));
        break;
      case frame_kind::departed:
        block.departed.store(what.value);
        group_.memory().wake_all();
        break;
      case frame_kind::offer: messages_.apply_offer(what); break;
      case frame_kind::message_part: messages_.apply_message_part(what); break;
      case frame_kind::answer: messages_.apply_answer(what, payload); break;
      case frame_kind::last_message: what.get<message_call_copy>().store_in(block.messages.last_call); break;
      case frame_kind::device_board: {
        device_board_copy board;
        std::memcpy(&board, payload.data(), sizeof(board));
        board.store_in(block.devices);
        break;
      }
      default: break;
    }
  }

  /// Wakes the ranks that wait for a step, if any came since the last call, and those that wait for transfers of their
  /// own, if some `have_moved`.
  void wake_if_new(bool have_moved) {
    const bool has_news = std::exchange(has_new_steps_, false) || (have_moved && are_quiet());
    if (has_news) {
      std::atomic_thread_fence(std::memory_order_seq_cst);  // a rank that sleeps looks at its transfers before
      if (group_.memory().header().sleepers.load() != 0) {
        group_.memory().wake();
      }
    }
  }

 private:
  /// The last values that were sent of a rank of this machine.
  struct sent_state {
    std::uint64_t step = 0;
    std::uint32_t departed = 0;
    device_board_copy board;
    mirrored_group::site_hashes sites{};
  };

  [[nodiscard]] bool are_quiet() const noexcept {
    return group_.memory().header().changes.are_quiet.load(std::memory_order_relaxed);
  }
  [[nodiscard]] sent_state& sent_of(int rank) { return sent_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] const sent_state& sent_of(int rank) const { return sent_[static_cast<std::size_t>(rank)]; }

  /// Calls `visit(rank)` for each rank with a mark, and clears the marks first.
  template <std::size_t Words, class Visit>
  void for_each_marked(std::atomic<std::uint64_t> (&marks)[Words], Visit&& visit) {
    const auto words = static_cast<std::size_t>((group_.size() + 63) / 64);
    for (std::size_t word = 0; word < words; ++word) {
      if (marks[word].load(std::memory_order_relaxed) == 0) {
        continue;
      }
      for (std::uint64_t bits = marks[word].exchange(0); bits != 0; bits &= bits - 1) {
        visit(static_cast<int>(word * 64) + std::countr_zero(bits));
      }
    }
  }

  /// Sends what ranks have written into mailboxes. Returns whether there was anything.
  bool send_messages(frame_sender& out) {
    bool any = false;
    for_each_marked(group_.memory().header().changes.mailboxes, [&](int rank) {
      any = true;
      group_.is_local(rank) ? messages_.send_offers(out, rank) : messages_.send_answers(out, rank);
    });
    return any;
  }

  // Steps.

  void send_steps(frame_sender& out, int rank) {
    sent_state& sent = sent_of(rank);
    // Before all else, so that what the rank did before it left goes before.
    const std::uint32_t departed = group_.memory().block(rank).departed.load();
    if (are_quiet()) {
      sent.step = std::max(sent.step, oldest_kept(rank) - 1);
    }
    while (true) {
      const layout::flag_cell& cell = group_.memory().cell(rank, sent.step + 1);
      const std::uint64_t step = cell.step.load(std::memory_order_acquire);
      if (step <= sent.step) {
        break;
      }
      sent.step = step;  // greater by 1, except in a broken group
      send_step(out, rank, step, cell);
    }
    if (departed != sent.departed) {
      sent.departed = departed;
      send_messages(out);
      send_cells(out);
      frame what = group_.frame_of(frame_kind::departed, rank, 0);
      what.value = departed;
      group_.send_to_all(out, what);
    }
  }

  /// Returns the oldest step of a rank that others may need to know: all have compared the one before the last. It is
  /// not overwritten during this pass, in which the rank can take two.
  [[nodiscard]] std::uint64_t oldest_kept(int rank) const {
    constexpr std::uint64_t kept = layout::depth;
    std::uint64_t latest = kept;
    for (const layout::flag_cell& cell : group_.memory().block(rank).cells) {
      latest = std::max(latest, cell.step.load(std::memory_order_acquire));
    }
    return latest - kept + 1;
  }

  void send_step(frame_sender& out, int rank, std::uint64_t step, const layout::flag_cell& cell) {
    read_parts(rank, step, cell);
    std::size_t bytes = 0;
    for (const layout::slot_range& part : parts_) {
      bytes += part.bytes;
    }
    if (bytes > cell_batch::most_part_bytes || parts_.size() > cell_batch::most_parts) {
      for (const int machine : group_.others()) {
        send_parts(out, machine, rank, step);
      }
      parts_.clear();
    }
    const auto copy = cell_copy::of(cell, step);
    group_.send_site(out, frame_kind::site, rank, copy.site % layout::site_count, group_.memory().block(rank).sites,
                     sent_of(rank).sites);
    if (announces_failure(cell)) {
      const std::string text = group_.memory().failure(rank, step).read().value_or(std::string());
      group_.send_copy_to_all(out, group_.frame_of(frame_kind::failure, rank, step), mirrored_group::bytes_of(text));
    }
    if (!cells_.add(rank, copy, group_.memory().slot(rank, step), parts_)) {
      send_cells(out);
      cells_.add(rank, copy, group_.memory().slot(rank, step), parts_);
    }
  }

  /// Sends the cells whose larger parts have been sent.
  void send_cells(frame_sender& out) {
    if (!cells_.is_empty()) {
      frame what = group_.frame_of(frame_kind::cells, group_.local_ranks().front(), 0);
      cells_.move_to(what);
      group_.send_to_all(out, what);
    }
  }

  void apply_cells(int machine, const frame& what) {
    const auto is_there = [&](int rank) { return group_.is_remote(rank) && group_.machine_of(rank) == machine; };
    const auto place = [&](int rank, std::uint64_t step, std::size_t offset, std::size_t bytes) {
      return is_there(rank) && fits(offset, bytes, slot_end()) ? group_.memory().slot(rank, step) + offset : nullptr;
    };
    cell_batch::read(what, place, [&](int rank, const cell_copy& cell) {
      if (is_there(rank)) {
        cell.publish_in(group_.memory().cell(rank, cell.step));
        has_new_steps_ = true;
      }
    });
  }

  /// Returns whether a part lies in memory of `limit` bytes, also where the end of the part cannot be represented.
  [[nodiscard]] static bool fits(std::size_t offset, std::size_t bytes, std::size_t limit) {
    return bytes <= limit && offset <= limit - bytes;
  }

  /// Returns the bytes of a slot, with its result.
  [[nodiscard]] std::size_t slot_end() const {
    return group_.memory().sizes().slot_bytes + group_.memory().sizes().result_bytes;
  }

  /// Reads the list of the parts of a slot that ranks of other machines read.
  void read_parts(int rank, std::uint64_t step, const layout::flag_cell& cell) {
    parts_.clear();
    if ((cell.what.load(std::memory_order_relaxed) & quiet_call) != 0) {
      return;
    }
    const std::byte* const list = group_.memory().slot_ranges(rank, step);
    std::uint64_t count = 0;
    std::memcpy(&count, list, sizeof(count));
    count = std::min<std::uint64_t>(count, layout::dimensions::most_ranges(group_.size()));
    for (std::uint64_t index = 0; index < count; ++index) {
      layout::slot_range part;
      std::memcpy(&part, list + sizeof(count) + index * sizeof(part), sizeof(part));
      if (part.reader < 0 || group_.is_remote(part.reader)) {
        parts_.push_back(part);
      }
    }
  }

  /// Sends the parts of a slot that ranks of `machine` read. Parts that lie behind one another go together.
  void send_parts(frame_sender& out, int machine, int rank, std::uint64_t step) {
    layout::slot_range whole{.offset = 0, .bytes = 0, .reader = -1};
    const auto send_whole = [&] {
      if (whole.bytes != 0) {
        frame what = group_.frame_of(frame_kind::slot_part, rank, step);
        what.offset = whole.offset;
        out.send(machine, what, {group_.memory().slot(rank, step) + whole.offset, whole.bytes});
      }
    };
    for (const layout::slot_range& part : parts_) {
      if (part.reader >= 0 && group_.machine_of(part.reader) != machine) {
        continue;
      }
      if (part.offset == whole.offset + whole.bytes) {
        whole.bytes += part.bytes;
      } else {
        send_whole();
        whole = part;
      }
    }
    send_whole();
  }

  mirrored_group group_;
  message_mirror messages_{group_};
  std::vector<sent_state> sent_;           // by rank
  cell_batch cells_;                       // to be sent
  std::vector<layout::slot_range> parts_;  // scratch: of a slot
  bool has_proposed_ = false;
  bool has_new_steps_ = false;
};

}  // namespace hfcomm::engines
