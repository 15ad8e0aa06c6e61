// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <map>
#include <memory>
#include <memory_resource>
#include <mutex>
#include <new>
#include <utility>

#include <hfcomm/engine/shared_memory/group_memory.hpp>
#include <hfcomm/machine/fork_guard.hpp>

namespace hfcomm::engines {

/// A rank's heap in its group's shared memory, for whole pages at a time: buffers, not nodes of lists. Nobody but this
/// rank allocates in it, so its bookkeeping is this process' own, and a rank that dies leaves nothing behind. What is
/// allocated is filled with zeros.
///
/// Any thread. It outlives its group: the memory goes when the last allocation and the last handle have gone.
class shared_heap final : public std::pmr::memory_resource {
 public:
  /// `memory` has a heap for `rank`.
  shared_heap(const group_memory& memory, int rank) : segment_(memory.segment()), state_(memory.header().lost.state) {
    free_.emplace(memory.heap_offset(rank), memory.heap_bytes());
  }

 private:
  static constexpr std::uint32_t lost = 2;

  [[nodiscard]] static std::size_t whole_pages(std::size_t bytes) {
    return layout::round_up(bytes == 0 ? 1 : bytes, layout::page_bytes());
  }

  void* do_allocate(std::size_t bytes, std::size_t alignment) override {
    if (!creator_.in_creating_process() || alignment > layout::page_bytes() || bytes > segment_->size()) {
      throw std::bad_alloc();  // the child of a fork would take what its parent takes
    }
    const std::size_t wanted = whole_pages(bytes);
    const std::scoped_lock lock(mutex_);
    for (auto gap = free_.begin(); gap != free_.end(); ++gap) {
      const auto [offset, size] = *gap;
      if (size < wanted) {
        continue;
      }
      if (!segment_->commit(offset, wanted)) {
        static_cast<void>(segment_->release(offset, wanted));  // as far as it came
        throw std::bad_alloc();
      }
      if (size > wanted) {
        auto node = free_.extract(gap);  // so that nothing can fail from here on
        node.key() = offset + wanted;
        node.mapped() = size - wanted;
        free_.insert(std::move(node));
      } else {
        free_.erase(gap);
      }
      return segment_->data() + offset;
    }
    throw std::bad_alloc();
  }

  void do_deallocate(void* pointer, std::size_t bytes, std::size_t /*alignment*/) override {
    // In a group that is lost, a rank that was in the middle of an operation may still be writing here: then nobody
    // else gets it. And the child of a fork has the same pages, which are its parent's.
    if (!creator_.in_creating_process() || state_.load() == lost) {
      return;
    }
    const auto offset = static_cast<std::size_t>(static_cast<std::byte*>(pointer) - segment_->data());
    std::size_t size = whole_pages(bytes);
    if (!segment_->release(offset, size)) {
      std::memset(pointer, 0, size);
    }
    const std::scoped_lock lock(mutex_);
    auto next = free_.upper_bound(offset);
    if (next != free_.end() && offset + size == next->first) {
      size += next->second;
      next = free_.erase(next);
    }
    if (next != free_.begin()) {
      if (const auto before = std::prev(next); before->first + before->second == offset) {
        before->second += size;
        return;
      }
    }
    try {
      free_.emplace_hint(next, offset, size);
    } catch (const std::bad_alloc&) {
      // Its addresses are lost; its pages are not.
    }
  }

  [[nodiscard]] bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override {
    return this == &other;
  }

  std::shared_ptr<rendezvous::shared_segment> segment_;
  const std::atomic<std::uint32_t>& state_;  // of the group's verdict, in the segment
  rendezvous::fork_guard creator_;
  std::mutex mutex_;
  std::map<std::size_t, std::size_t> free_;  // gaps: offset and size
};

/// Memory like any other, but of zeros, for groups that share none.
class ordinary_memory final : public std::pmr::memory_resource {
  void* do_allocate(std::size_t bytes, std::size_t alignment) override {
    return std::memset(std::pmr::new_delete_resource()->allocate(bytes, alignment), 0, bytes);
  }
  void do_deallocate(void* pointer, std::size_t bytes, std::size_t alignment) override {
    std::pmr::new_delete_resource()->deallocate(pointer, bytes, alignment);
  }
  [[nodiscard]] bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override {
    return this == &other;
  }
};

}  // namespace hfcomm::engines
