// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include <hfcomm/engine/shared_memory/memory/group_memory.hpp>
#include <hfcomm/engine/shared_memory/memory/layout.hpp>

namespace hfcomm::engines {

/// The parts of a rank's next slot that other ranks read, as its machine's agent finds them. Nothing where all ranks
/// are on one machine.
class named_parts {
 public:
  named_parts(const group_memory& memory, int rank) : memory_(memory), rank_(rank) {}

  /// Adds a part of the slot of `step`, and the rank that reads it; -1: all ranks.
  void add(std::uint64_t step, std::size_t offset, std::size_t bytes, int reader) noexcept {
    if (spans_machines_ && bytes != 0 && reader != rank_) {
      const layout::slot_range part{static_cast<std::uint32_t>(offset), static_cast<std::uint32_t>(bytes), reader};
      std::memcpy(memory_.slot_ranges(rank_, step) + sizeof(count_) + count_ * sizeof(part), &part, sizeof(part));
      ++count_;
    }
  }

  /// Completes the list of `step`, which is about to be published.
  void complete(std::uint64_t step) noexcept {
    if (spans_machines_) {
      std::memcpy(memory_.slot_ranges(rank_, step), &count_, sizeof(count_));
      count_ = 0;
    }
  }

 private:
  const group_memory& memory_;
  int rank_;
  bool spans_machines_ = memory_.spans_machines();
  std::uint64_t count_ = 0;
};

}  // namespace hfcomm::engines
