// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include <hfcomm/engine/hierarchical/frame.hpp>
#include <hfcomm/engine/hierarchical/records.hpp>
#include <hfcomm/engine/shared_memory/memory.hpp>

namespace hfcomm::engines {

/// Cells of ranks and small parts of their slots, packed into the body of one frame. Ranks of a machine often publish a
/// step at the same time, and a message costs far more than its bytes.
class cell_batch {
 public:
  /// Parts of a slot that have more bytes in all go by themselves.
  static constexpr std::size_t most_part_bytes = 256;

  [[nodiscard]] bool is_empty() const noexcept { return used_ == 0; }

  /// Adds a cell, behind the parts of its slot. Returns false where there is no room; there is in an empty batch, if
  /// the parts have no more than `most_part_bytes` and are at most `most_parts`.
  bool add(int rank, const cell_copy& cell, const std::byte* slot, std::span<const layout::slot_range> parts) {
    std::size_t bytes = sizeof(entry);
    for (const layout::slot_range& part : parts) {
      bytes += sizeof(part_head) + layout::round_up(part.bytes, 8);
    }
    if (used_ + bytes > body_.size()) {
      return false;
    }
    put(entry{rank, static_cast<std::uint32_t>(parts.size()), cell});
    for (const layout::slot_range& part : parts) {
      put(part_head{part.offset, part.bytes});
      std::memcpy(body_.data() + used_, slot + part.offset, part.bytes);
      used_ += layout::round_up(part.bytes, 8);
    }
    return true;
  }
  static constexpr std::size_t most_parts = 8;

  /// Moves what was added to a frame.
  void move_to(frame& what) {
    what.value = static_cast<std::uint32_t>(used_);
    what.body = body_;
    used_ = 0;
  }

  /// Calls `place(rank, step, offset, bytes)` for each part of a frame, which returns where it goes or null, and then
  /// `publish(rank, cell)`. What another machine has sent may be anything: returns false where it is no batch.
  template <class Place, class Publish>
  static bool read(const frame& what, Place&& place, Publish&& publish) {
    const std::span<const std::byte> left(what.body);
    std::size_t at = 0;
    const std::size_t end = what.value;
    if (end > left.size()) {
      return false;
    }
    while (at < end) {
      entry one;
      if (!get(left, at, end, one)) {
        return false;
      }
      for (std::uint32_t index = 0; index < one.parts; ++index) {
        part_head part;
        if (!get(left, at, end, part) || layout::round_up(part.bytes, 8) > end - at) {
          return false;
        }
        if (std::byte* const to = place(one.rank, one.cell.step, part.offset, part.bytes); to != nullptr) {
          std::memcpy(to, left.data() + at, part.bytes);
        }
        at += layout::round_up(part.bytes, 8);
      }
      publish(one.rank, one.cell);
    }
    return true;
  }

 private:
  struct entry {
    std::int32_t rank = 0;
    std::uint32_t parts = 0;
    cell_copy cell;
  };
  struct part_head {
    std::uint32_t offset = 0;
    std::uint32_t bytes = 0;
  };
  using body = decltype(frame::body);
  static_assert(sizeof(entry) + most_parts * (sizeof(part_head) + 7) + most_part_bytes <= sizeof(body));

  template <class T>
  void put(const T& content) {
    std::memcpy(body_.data() + used_, &content, sizeof(T));
    used_ += sizeof(T);
  }
  template <class T>
  static bool get(std::span<const std::byte> from, std::size_t& at, std::size_t end, T& content) {
    if (end - at < sizeof(T)) {
      return false;
    }
    std::memcpy(&content, from.data() + at, sizeof(T));
    at += sizeof(T);
    return true;
  }

  body body_{};
  std::size_t used_ = 0;
};

}  // namespace hfcomm::engines
