// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <limits>
#include <memory>
#include <new>
#include <span>
#include <utility>
#include <vector>

#include <hfcomm/core/concepts.hpp>
#include <hfcomm/core/plain.hpp>

namespace hfcomm {

/// Memory of zeros, for buffers. Any thread may call.
class buffer_memory {
 public:
  buffer_memory() = default;
  buffer_memory(const buffer_memory&) = delete;
  buffer_memory& operator=(const buffer_memory&) = delete;
  virtual ~buffer_memory() = default;

  /// Returns zeroed bytes. Throws std::bad_alloc.
  [[nodiscard]] virtual void* allocate(std::size_t bytes, std::size_t alignment) = 0;
  /// Frees what `allocate` has returned for the same numbers.
  virtual void deallocate(void* data, std::size_t bytes, std::size_t alignment) noexcept = 0;
};

/// A buffer in memory that the ranks of a group share: `group.allocate<float>(n)`. A contiguous range, so it can be
/// passed wherever a span can. Where every rank's buffer lies in its group's memory, `all_reduce` and `reduce` of more
/// than a few KiB read and write the buffers themselves: two passes over memory, and no copies. For other operations
/// and other groups it is ordinary memory.
///
/// Each rank allocates its own at any time; allocation is not collective. After an operation that threw, other ranks
/// may still be writing to it. It may outlive its group. Movable, not copyable.
template <plain T>
class shared_buffer {
 public:
  using value_type = T;
  using iterator = T*;
  using const_iterator = const T*;

  shared_buffer() = default;
  /// Makes `count` zeros. Throws std::bad_alloc where there is no memory for them.
  shared_buffer(std::size_t count, std::shared_ptr<buffer_memory> memory) : memory_(std::move(memory)), size_(count) {
    if (count > std::numeric_limits<std::size_t>::max() / 2 / sizeof(T)) {
      throw std::bad_alloc();
    }
    if (count != 0) {
      data_ = static_cast<T*>(memory_->allocate(count * sizeof(T), alignment));
    }
  }
  shared_buffer(shared_buffer&& other) noexcept
      : memory_(std::move(other.memory_)),
        data_(std::exchange(other.data_, nullptr)),
        size_(std::exchange(other.size_, 0)) {}
  shared_buffer& operator=(shared_buffer&& other) noexcept {
    shared_buffer(std::move(other)).swap(*this);
    return *this;
  }
  ~shared_buffer() {
    if (data_ != nullptr) {
      memory_->deallocate(data_, size_ * sizeof(T), alignment);
    }
  }

  [[nodiscard]] T* data() noexcept { return data_; }
  [[nodiscard]] const T* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
  [[nodiscard]] T* begin() noexcept { return data_; }
  [[nodiscard]] T* end() noexcept { return data_ + size_; }
  [[nodiscard]] const T* begin() const noexcept { return data_; }
  [[nodiscard]] const T* end() const noexcept { return data_ + size_; }
  [[nodiscard]] T& operator[](std::size_t index) noexcept { return data_[index]; }
  [[nodiscard]] const T& operator[](std::size_t index) const noexcept { return data_[index]; }

  void swap(shared_buffer& other) noexcept {
    std::swap(memory_, other.memory_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
  }

 private:
  static constexpr std::size_t alignment = alignof(T) > 64 ? alignof(T) : 64;

  std::shared_ptr<buffer_memory> memory_;
  T* data_ = nullptr;
  std::size_t size_ = 0;
};

template <plain T>
inline constexpr bool enable_buffer_view<shared_buffer<T>> = true;

/// An allocator for containers of the standard library. Their elements lie where a `shared_buffer`'s do:
/// `std::vector<float, shared_allocator<float>> v(n, shared_allocator<float>(group))`. Every allocation takes whole
/// pages. Such a vector is a buffer, not an object: it cannot be made without a group, and so not by decoding.
template <class T>
class shared_allocator {
 public:
  using value_type = T;
  using propagate_on_container_move_assignment = std::true_type;
  using propagate_on_container_swap = std::true_type;

  /// `group` is a process_group.
  template <class Group>
    requires requires(const Group& group) { group.shared_memory(); }
  explicit shared_allocator(const Group& group) : memory_(group.shared_memory()) {}
  explicit shared_allocator(std::shared_ptr<buffer_memory> memory) : memory_(std::move(memory)) {}
  template <class Other>
  shared_allocator(const shared_allocator<Other>& other) noexcept : memory_(other.memory()) {}

  [[nodiscard]] T* allocate(std::size_t count) {
    if (count > std::numeric_limits<std::size_t>::max() / 2 / sizeof(T)) {
      throw std::bad_array_new_length();
    }
    return static_cast<T*>(memory_->allocate(count * sizeof(T), alignment));
  }
  void deallocate(T* data, std::size_t count) noexcept { memory_->deallocate(data, count * sizeof(T), alignment); }

  [[nodiscard]] const std::shared_ptr<buffer_memory>& memory() const noexcept { return memory_; }
  template <class Other>
  [[nodiscard]] friend bool operator==(const shared_allocator& left, const shared_allocator<Other>& right) noexcept {
    return left.memory() == right.memory();
  }

 private:
  static constexpr std::size_t alignment = alignof(T) > 64 ? alignof(T) : 64;

  std::shared_ptr<buffer_memory> memory_;
};

template <plain T>
inline constexpr bool enable_buffer_view<std::vector<T, shared_allocator<T>>> = true;

namespace detail {

/// Bytes that all ranks of a group can read.
using shared_bytes = std::vector<std::byte, shared_allocator<std::byte>>;

}  // namespace detail

}  // namespace hfcomm
