// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>

#include <hfcomm/core/plain_list.hpp>
#include <hfcomm/core/std_algorithm.hpp>
#include <hfcomm/engine/shared_memory/memory/group_memory.hpp>
#include <hfcomm/engine/shared_memory/memory/layout.hpp>
#include <hfcomm/machine/shared_segment.hpp>

namespace hfcomm::engines {

/// A buffer whose whole pages are replaced by pages of its rank's heap, so that other ranks reach them.
///
/// Its ends are no whole pages. They stay where they are, because other memory of the process is on their pages. The
/// heap has a page for each end, before and behind the others, so that it holds the buffer in one piece. Ends are
/// copied there before the other ranks read them, and from there after they have written them.
///
///   buffer                head | page | page | tail
///   in the heap   page: ..head | page | page | tail.. :page
class replaced_buffer {
 public:
  explicit replaced_buffer(std::span<std::byte> buffer) : buffer_(buffer) {
    const std::size_t page = layout::page_bytes();
    const auto begin = reinterpret_cast<std::uintptr_t>(buffer.data());
    head_ = std::min<std::size_t>(layout::round_up(begin, page) - begin, buffer.size());
    pages_ = (buffer.size() - head_) / page * page;
  }

  [[nodiscard]] std::span<std::byte> buffer() const noexcept { return buffer_; }
  /// Returns the whole pages of the buffer; empty where there are none.
  [[nodiscard]] std::span<std::byte> pages() const noexcept { return buffer_.subspan(head_, pages_); }

  /// Returns the bytes that the buffer takes in the heap, with a page for each end.
  [[nodiscard]] std::size_t heap_bytes() const noexcept {
    return head_page() + pages_ + (tail_begin() < buffer_.size() ? layout::page_bytes() : 0);
  }
  /// Sets where in the heap they are.
  void set_block(std::byte* block) noexcept { block_ = block; }
  [[nodiscard]] std::byte* block() const noexcept { return block_; }
  /// Returns where in the heap the whole pages are.
  [[nodiscard]] std::byte* pages_in_heap() const noexcept { return block_ + head_page(); }
  /// Returns where in the heap a byte of the buffer is.
  [[nodiscard]] std::byte* in_heap(const std::byte* byte) const noexcept {
    return pages_in_heap() - head_ + (byte - buffer_.data());
  }

  [[nodiscard]] bool contains(std::span<const std::byte> part) const noexcept {
    const auto begin = reinterpret_cast<std::uintptr_t>(buffer_.data());
    const auto first = reinterpret_cast<std::uintptr_t>(part.data());
    return first >= begin && first + part.size() <= begin + buffer_.size();
  }
  /// Calls `use(end, in_heap)` for what a part of the buffer has of the head and of the tail, which are not empty.
  template <class Use>
  void for_each_end(std::span<const std::byte> part, const Use& use) const {
    const auto first = static_cast<std::size_t>(part.data() - buffer_.data());
    const std::size_t last = first + part.size();
    for (const auto& [begin, end] : {std::pair(std::size_t{0}, head_), std::pair(tail_begin(), buffer_.size())}) {
      if (const std::size_t from = std::max(begin, first), to = std::min(end, last); from < to) {
        const auto common = buffer_.subspan(from, to - from);
        use(common, in_heap(common.data()));
      }
    }
  }

 private:
  [[nodiscard]] std::size_t head_page() const noexcept { return head_ != 0 ? layout::page_bytes() : 0; }
  [[nodiscard]] std::size_t tail_begin() const noexcept { return head_ + pages_; }

  std::span<std::byte> buffer_;
  std::size_t head_;
  std::size_t pages_;
  std::byte* block_ = nullptr;
};

/// The list of a rank's replaced buffers. Any thread may call. No operation uses a buffer while it is added or removed.
class shared_ranges {
 public:
  explicit shared_ranges(std::shared_ptr<rendezvous::shared_segment> segment) : segment_(std::move(segment)) {}

  /// Adds a buffer. Returns false, and does nothing, where it overlaps another one.
  [[nodiscard]] bool add(const replaced_buffer& one) {
    const std::scoped_lock lock(mutex_);
    for (const replaced_buffer& other : buffers_) {
      if (begin_of(one) < end_of(other) && begin_of(other) < end_of(one)) {
        return false;
      }
    }
    buffers_.push_back(one);
    count_.store(buffers_.size());
    return true;
  }
  void remove(const replaced_buffer& one) noexcept {
    const std::scoped_lock lock(mutex_);
    for (std::size_t index = 0; index < buffers_.size(); ++index) {
      if (buffers_[index].buffer().data() == one.buffer().data()) {
        buffers_.erase(index);
        break;
      }
    }
    count_.store(buffers_.size());
  }

  /// Returns the offset in the segment of a part of a replaced buffer; 0 for any other memory.
  [[nodiscard]] std::uint64_t place_of(std::span<const std::byte> part) const {
    const auto found = find(part);
    return found ? static_cast<std::uint64_t>(found->in_heap(part.data()) - segment_->data()) : 0;
  }
  /// Copies the ends of a part into the heap. Does nothing for other memory.
  void copy_ends_to_heap(std::span<const std::byte> part) const {
    if (const auto found = find(part)) {
      found->for_each_end(part, [](std::span<const std::byte> end, std::byte* in_heap) {
        std::memcpy(in_heap, end.data(), end.size());
      });
    }
  }
  /// Copies the ends of a part from the heap. Does nothing for other memory.
  void copy_ends_from_heap(std::span<const std::byte> part) const {
    if (const auto found = find(part)) {
      found->for_each_end(part, [](std::span<std::byte> end, const std::byte* in_heap) {
        std::memcpy(end.data(), in_heap, end.size());
      });
    }
  }

 private:
  [[nodiscard]] static std::uintptr_t begin_of(const replaced_buffer& one) noexcept {
    return reinterpret_cast<std::uintptr_t>(one.buffer().data());
  }
  [[nodiscard]] static std::uintptr_t end_of(const replaced_buffer& one) noexcept {
    return begin_of(one) + one.buffer().size();
  }

  [[nodiscard]] std::optional<replaced_buffer> find(std::span<const std::byte> part) const {
    if (count_.load() == 0) {  // most programs share no buffer
      return std::nullopt;
    }
    const std::scoped_lock lock(mutex_);
    for (const replaced_buffer& one : buffers_) {
      if (one.contains(part)) {
        return one;
      }
    }
    return std::nullopt;
  }

  std::shared_ptr<rendezvous::shared_segment> segment_;
  std::atomic<std::size_t> count_{0};  // of the buffers
  mutable std::mutex mutex_;
  hfcomm::detail::plain_list<replaced_buffer> buffers_;  // few
};

}  // namespace hfcomm::engines
