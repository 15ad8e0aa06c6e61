// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <span>

#include <unistd.h>

#include <hfcomm/engine/shared_memory/memory.hpp>
#include <hfcomm/engine/shared_memory/steps.hpp>
#include <hfcomm/machine/random_id.hpp>

namespace hfcomm::engines {

/// Memory of other ranks that a rank can read besides their slots. Every rank publishes its own side when the group is
/// made, and reads the others' once all have taken a step. So the group's first operation uses only cells and slots.
///
/// Buffers in the heaps of the group's segment are read in place, if all ranks have mapped the heaps. So are ordinary
/// buffers whose pages are replaced by those of a heap (see shared_ranges).
///
/// The private memory of other ranks is read by the kernel, where it lets this rank (see process_memory.hpp).
class peer_memory {
 public:
  peer_memory(const lockstep& steps, const shared_ranges& ranges)
      : steps_(steps), memory_(steps.memory()), ranges_(ranges) {
    layout::rank_block& block = memory_.block(steps.rank());
    block.has_heaps = memory_.heap_bytes() != 0 ? 1 : 0;
    try {
      word_ = rendezvous::random_word();
    } catch (const std::exception&) {
      return;  // without a probe, no rank reads here
    }
    block.probe.pid = static_cast<std::int32_t>(::getpid());
    block.probe.address = reinterpret_cast<std::uintptr_t>(&word_);
    block.probe.word = word_;
  }
  peer_memory(const peer_memory&) = delete;
  peer_memory& operator=(const peer_memory&) = delete;

  /// Returns the offset in the segment of a buffer in a heap, or in a shared range, that all ranks can read; 0 for any
  /// other.
  [[nodiscard]] std::uint64_t place_of(std::span<const std::byte> buffer) {
    std::uint64_t place = memory_.place_of(buffer);
    place = place != 0 ? place : ranges_.place_of(buffer);
    if (place != 0 && !all_have_heaps_ && all_have_published()) {
      all_have_heaps_ = true;
      for (int rank = 0; rank < steps_.size(); ++rank) {
        all_have_heaps_ = *all_have_heaps_ && memory_.block(rank).has_heaps != 0;
      }
    }
    return all_have_heaps_.value_or(false) ? place : 0;
  }

  /// The same for a buffer that the other ranks will read there.
  [[nodiscard]] std::uint64_t place_to_read(std::span<const std::byte> buffer) {
    const std::uint64_t place = place_of(buffer);
    if (place != 0) {
      ranges_.copy_ends_to_heap(buffer);
    }
    return place;
  }
  /// Lets the other ranks read at its place what this rank has written to a buffer.
  void show_written(std::span<const std::byte> buffer) const { ranges_.copy_ends_to_heap(buffer); }
  /// Takes what the other ranks have written to a buffer at its place.
  void take_written(std::span<std::byte> buffer) const { ranges_.copy_ends_from_heap(buffer); }

  /// Returns the memory at an offset that another rank has published.
  [[nodiscard]] std::byte* at(std::uint64_t place) const noexcept { return memory_.at(place); }

  /// Returns whether this rank can read the private memory of all others.
  [[nodiscard]] bool can_read_all() {
    if (memory_.spans_machines()) {
      return false;
    }
    if (!can_read_all_ && all_have_published()) {
      can_read_all_ = try_all();
    }
    return can_read_all_.value_or(false);
  }

  /// Makes `can_read_all` return false, once all ranks have seen that one of them cannot read.
  void stop_reading() noexcept { can_read_all_ = false; }

  /// Returns whether the first and the last of these bytes of another rank can be read.
  [[nodiscard]] bool can_read(int rank, std::uint64_t address, std::size_t bytes) const noexcept {
    std::byte end{};
    return bytes == 0 || (read(rank, address, {&end, 1}) && read(rank, address + bytes - 1, {&end, 1}));
  }

  /// Copies memory of `rank` from `address` on into `to`. Returns false where not all of it can be read.
  [[nodiscard]] bool read(int rank, std::uint64_t address, std::span<std::byte> to) const noexcept {
    return read_process(memory_.block(rank).probe, address, to);
  }

 private:
  [[nodiscard]] bool all_have_published() const noexcept { return steps_.all_have_published(); }

  [[nodiscard]] bool try_all() {
    for (int other = 0; other < steps_.size(); ++other) {
      if (other != steps_.rank() && !can_read_process(memory_.block(other).probe)) {
        return false;
      }
    }
    return true;
  }

  const lockstep& steps_;
  const group_memory& memory_;
  const shared_ranges& ranges_;
  std::optional<bool> all_have_heaps_;
  std::uint64_t word_ = 0;
  std::optional<bool> can_read_all_;
};

}  // namespace hfcomm::engines
