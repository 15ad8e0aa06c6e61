// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <utility>

#include <sys/mman.h>

#include <hfcomm/core/error.hpp>
#include <hfcomm/core/std_algorithm.hpp>
#include <hfcomm/engine/shared_memory/memory/layout.hpp>
#include <hfcomm/machine/agent_bell.hpp>
#include <hfcomm/machine/shared_segment.hpp>
#include <hfcomm/machine/waiting.hpp>

namespace hfcomm::engines {

/// Pointers to the parts of a group's shared memory.
class group_memory {
 public:
  /// Throws engine_error where the segment is not laid out for a group of `ranks`. `bell` wakes this machine's agent,
  /// where the group has ranks on other machines.
  [[gnu::cold]] group_memory(std::shared_ptr<rendezvous::shared_segment> segment, int ranks,
                             std::shared_ptr<const rendezvous::agent_bell> bell = nullptr)
      : segment_(std::move(segment)), sizes_(layout::dimensions::for_ranks(ranks)), bell_(std::move(bell)) {
    if (segment_->size() < sizes_.total_bytes() || header().magic != layout::magic ||
        header().version != wire_version || header().ranks != ranks) {
      detail::throw_error<engine_error>(
          {"the group's shared memory does not look as this version of hfcomm lays it out"});
    }
    sizes_.slot_bytes = header().slot_bytes;
    sizes_.result_bytes = header().result_bytes;
    sizes_.one_shot_bytes = header().one_shot_bytes;
    sizes_.ranges_bytes = header().ranges_bytes;
    sizes_.message_slot_bytes = layout::dimensions::message_bytes_of(sizes_.slot_bytes);
    if (segment_->size() < sizes_.total_bytes()) {
      detail::throw_error<engine_error>({"the group's shared memory is too small"});
    }
    heap_bytes_ = (segment_->size() - sizes_.total_bytes()) / static_cast<std::size_t>(ranks) / layout::page_bytes() *
                  layout::page_bytes();
  }

  /// Makes a rank's page faults happen here and not in the first collectives. An older kernel ignores it and faults
  /// later.
  ///
  /// The message slots get their pages with the first message, and slots of several machines, or of several hundred
  /// ranks, with their first use: there are hundreds of megabytes of them. Ranks that are threads share all pages, and
  /// their groups are short-lived, so they touch few of them.
  void populate() const noexcept {
    if (segment_->fd() >= 0) {
      constexpr std::size_t most = std::size_t{64} << 20;
      const std::size_t used = spans_machines() ? sizes_.small_slots_offset() : sizes_.message_slots_offset();
      ::madvise(segment_->data(), std::min(used, most), rendezvous::shared_segment::populate_write);
    }
  }

  [[nodiscard]] const layout::dimensions& sizes() const noexcept { return sizes_; }

  [[nodiscard]] layout::group_header& header() const noexcept {
    return *std::launder(reinterpret_cast<layout::group_header*>(segment_->data()));
  }
  [[nodiscard]] layout::rank_block& block(int rank) const noexcept {
    return *std::launder(reinterpret_cast<layout::rank_block*>(segment_->data() + sizes_.blocks_offset()) + rank);
  }
  [[nodiscard]] layout::flag_cell& cell(int rank, std::uint64_t step) const noexcept {
    return block(rank).cells[step % layout::cell_count];
  }
  /// Returns the memory of `rank` for a small contribution to `step`.
  [[nodiscard]] std::byte* small_slot(int rank, std::uint64_t step) const noexcept {
    const auto place = static_cast<std::size_t>(rank) * layout::cell_count + step % layout::cell_count;
    return segment_->data() + sizes_.small_slots_offset() + place * layout::small_slot_bytes;
  }
  /// Returns the text of the failure that `rank` has announced in `step`. It takes the place of a contribution.
  [[nodiscard]] const rendezvous::failure_text& failure(int rank, std::uint64_t step) const noexcept {
    return *std::launder(reinterpret_cast<const rendezvous::failure_text*>(small_slot(rank, step)));
  }
  /// Writes that text.
  void write_failure(int rank, std::uint64_t step, const std::string& text) const noexcept {
    (::new (small_slot(rank, step)) rendezvous::failure_text{})->write(text);
  }
  /// Returns the slot of `rank` for its chunk in `step`.
  [[nodiscard]] std::byte* slot(int rank, std::uint64_t step) const noexcept {
    const auto place = static_cast<std::size_t>(rank) * layout::depth + step % layout::depth;
    return segment_->data() + sizes_.slots_offset() + place * sizes_.slot_stride();
  }
  /// Returns the memory of `rank` for the slice that it has reduced in `step`.
  [[nodiscard]] std::byte* result(int rank, std::uint64_t step) const noexcept {
    return slot(rank, step) + sizes_.slot_bytes;
  }

  /// Returns the list of the parts of a slot that other ranks read: their number, and then slot_ranges.
  [[nodiscard]] std::byte* slot_ranges(int rank, std::uint64_t step) const noexcept {
    return slot(rank, step) + sizes_.slot_bytes + sizes_.result_bytes;
  }

  /// Returns whether the group has ranks on other machines.
  [[nodiscard]] bool spans_machines() const noexcept { return sizes_.spans_machines(); }
  /// Tells the machine's agent, if there is one, that `rank` has published a step or left.
  void note_step(int rank) const noexcept {
    if (bell_) {
      note(header().changes.steps, rank);
    }
  }
  /// Tells the machine's agent, if there is one, that an envelope of `sender` has changed.
  void note_envelope(int sender, const layout::envelope& envelope) const noexcept {
    if (bell_) {
      const auto index = static_cast<std::size_t>(&envelope - envelopes(sender).data());
      mailbox(sender).changed[index / 64].fetch_or(std::uint64_t{1} << index % 64);
      note(header().changes.mailboxes, sender);
    }
  }
  /// Tells the machine's agent, if there is one, that a record of a loss is proposed.
  void note_proposal() const noexcept {
    if (bell_) {
      bell_->ring(header().board_index);
    }
  }

  [[nodiscard]] layout::mailbox& mailbox(int rank) const noexcept { return block(rank).messages; }
  /// Returns the outgoing envelopes of `rank`. Their memory is fresh, and gets its pages with their first use.
  [[nodiscard]] std::span<layout::envelope> envelopes(int rank) const noexcept {
    auto* const all = std::launder(reinterpret_cast<layout::envelope*>(segment_->data() + sizes_.envelopes_offset()));
    return {all + sizes_.envelopes() * static_cast<std::size_t>(rank), sizes_.envelopes()};
  }
  /// Returns a slot that messages of `rank` pass through.
  [[nodiscard]] std::byte* message_slot(int rank, std::uint32_t slot) const noexcept {
    const auto place = static_cast<std::size_t>(rank) * layout::message_slot_count + slot % layout::message_slot_count;
    return segment_->data() + sizes_.message_slots_offset() + place * sizes_.message_slot_bytes;
  }

  [[nodiscard]] const std::shared_ptr<rendezvous::shared_segment>& segment() const noexcept { return segment_; }
  /// Returns the offset of the heap of `rank` in the segment.
  [[nodiscard]] std::size_t heap_offset(int rank) const noexcept {
    return sizes_.total_bytes() + heap_bytes_ * static_cast<std::size_t>(rank);
  }
  /// Returns the size of each rank's heap; 0 where this process has no addresses for them.
  [[nodiscard]] std::size_t heap_bytes() const noexcept { return heap_bytes_; }
  /// Returns the offset in the segment of a buffer that lies in a heap; 0 for any other.
  [[nodiscard]] std::uint64_t place_of(std::span<const std::byte> buffer) const noexcept {
    const auto begin = reinterpret_cast<std::uintptr_t>(segment_->data());
    const auto first = reinterpret_cast<std::uintptr_t>(buffer.data());
    const bool inside =
        heap_bytes_ != 0 && first >= begin + sizes_.total_bytes() && first + buffer.size() <= begin + segment_->size();
    return inside ? first - begin : 0;
  }
  [[nodiscard]] std::byte* at(std::uint64_t place) const noexcept { return segment_->data() + place; }

  /// Wakes the threads of `rank` that wait for a message.
  void notify(int rank) const noexcept {
    layout::mailbox& box = mailbox(rank);
    box.epoch.fetch_add(1);
    if (box.sleepers.load() != 0) {
      detail::futex_wake_all(box.epoch);
    }
  }

  /// Wakes all ranks, whatever they wait for.
  void wake_all() const noexcept {
    wake();
    for (int rank = 0; rank < sizes_.ranks; ++rank) {
      notify(rank);
    }
  }

  /// Wakes all ranks that wait in a step.
  void wake() const noexcept {
    header().wake_epoch.fetch_add(1);
    detail::futex_wake_all(header().wake_epoch);
  }

 private:
  void note(std::atomic<std::uint64_t> (&ranks)[layout::max_ranks / 64], int rank) const noexcept {
    ranks[rank / 64].fetch_or(std::uint64_t{1} << (rank % 64));
    bell_->ring(header().board_index);
  }

  std::shared_ptr<rendezvous::shared_segment> segment_;
  layout::dimensions sizes_;
  std::shared_ptr<const rendezvous::agent_bell> bell_;
  std::size_t heap_bytes_ = 0;
};

}  // namespace hfcomm::engines
