// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <utility>

#include <hfcomm/core/config.hpp>
#include <hfcomm/core/plain_list.hpp>
#include <hfcomm/core/shared_buffer.hpp>
#include <hfcomm/engine/shared_memory/memory/group_memory.hpp>
#include <hfcomm/machine/fork_guard.hpp>

namespace hfcomm::engines {

/// A rank's heap in its group's shared memory. It allocates whole pages of zeros, for buffers. Only this rank allocates
/// in it, so the bookkeeping is in private memory, and a rank that dies leaves nothing behind.
///
/// Any thread may call. It may outlive its group: the memory is freed with the last allocation and the last handle.
class shared_heap final : public buffer_memory {
 public:
  /// `memory` must have a heap for `rank`.
  shared_heap(const group_memory& memory, int rank) : segment_(memory.segment()), lost_(memory.header().lost) {
    free_.push_back({memory.heap_offset(rank), memory.heap_bytes()});
  }

  /// Returns false in the child of a fork, where nothing can be allocated.
  [[nodiscard]] bool in_creating_process() const noexcept { return creator_.in_creating_process(); }

  [[nodiscard]] void* allocate(std::size_t bytes, std::size_t alignment) override {
    if (!creator_.in_creating_process() || alignment > layout::page_bytes() || bytes > segment_->size()) {
      throw std::bad_alloc();  // the child of a fork would take what its parent takes
    }
    const std::size_t wanted = whole_pages(bytes);
    const std::scoped_lock lock(mutex_);
    for (std::size_t index = 0; index < free_.size(); ++index) {
      const auto [offset, size] = free_[index];
      if (size < wanted) {
        continue;
      }
      if (!segment_->commit(offset, wanted)) {
        static_cast<void>(segment_->release(offset, wanted));  // the pages that it did get
        throw std::bad_alloc();
      }
      if (size > wanted) {
        free_[index] = {offset + wanted, size - wanted};
      } else {
        free_.erase(index);
      }
      return segment_->data() + offset;
    }
    throw std::bad_alloc();
  }

  void deallocate(void* pointer, std::size_t bytes, std::size_t /*alignment*/) noexcept override {
    // In a broken group, a rank in the middle of an operation may still write here, so the memory is not reused. In the
    // child of a fork, the pages are the parent's.
    if (!creator_.in_creating_process() || lost_.is_complete()) {
      return;
    }
    const auto offset = static_cast<std::size_t>(static_cast<std::byte*>(pointer) - segment_->data());
    std::size_t size = whole_pages(bytes);
    if (!segment_->release(offset, size)) {
      std::memset(pointer, 0, size);
    }
    const std::scoped_lock lock(mutex_);
    std::size_t next = 0;
    while (next < free_.size() && free_[next].offset < offset) {
      ++next;
    }
    if (next < free_.size() && offset + size == free_[next].offset) {
      size += free_[next].size;
      free_.erase(next);
    }
    if (next > 0 && free_[next - 1].offset + free_[next - 1].size == offset) {
      free_[next - 1].size += size;
      return;
    }
    try {
      free_.insert(next, {offset, size});
    } catch (const std::bad_alloc&) {
      // The addresses are lost; the pages were released above.
    }
  }

 private:
  struct gap {
    std::size_t offset;
    std::size_t size;
  };

  [[nodiscard]] static std::size_t whole_pages(std::size_t bytes) {
    return layout::round_up(bytes == 0 ? 1 : bytes, layout::page_bytes());
  }

  std::shared_ptr<rendezvous::shared_segment> segment_;
  const layout::break_record& lost_;  // in the segment
  rendezvous::fork_guard creator_;
  std::mutex mutex_;
  hfcomm::detail::plain_list<gap> free_;  // by offset
};

/// Private memory of zeros, for groups that share none.
class ordinary_memory final : public buffer_memory {
 public:
  /// Returns the one of this process. Never destroyed: a buffer may be a global.
  HFCOMM_PROCESS_STATE static std::shared_ptr<buffer_memory> of_process() {
    static ordinary_memory& memory = *new ordinary_memory;  // NOLINT(*owning-memory*)
    return {std::shared_ptr<void>(), &memory};
  }

  [[nodiscard]] void* allocate(std::size_t bytes, std::size_t alignment) override {
    return std::memset(::operator new(bytes, std::align_val_t(alignment)), 0, bytes);
  }
  void deallocate(void* pointer, std::size_t bytes, std::size_t alignment) noexcept override {
    ::operator delete(pointer, bytes, std::align_val_t(alignment));
  }
};

}  // namespace hfcomm::engines
