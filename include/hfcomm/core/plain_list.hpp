// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <type_traits>

namespace hfcomm::detail {

/// The memory of a plain_list, whatever its elements are: growing is compiled once, for all of them.
class plain_memory {
 public:
  plain_memory(const plain_memory&) = delete;
  plain_memory& operator=(const plain_memory&) = delete;

 protected:
  plain_memory() = default;
  ~plain_memory();

  /// Makes room for `count` elements of `width` bytes. Throws std::bad_alloc; then nothing has changed.
  void reserve_elements(std::size_t count, std::size_t width);
  /// Inserts room for one element of `width` bytes at `index`. Throws std::bad_alloc; then nothing has changed.
  void insert_room(std::size_t index, std::size_t width);
  /// Removes the element of `width` bytes at `index`.
  void remove_element(std::size_t index, std::size_t width) noexcept;

  void* data_ = nullptr;
  std::size_t size_ = 0;
  std::size_t capacity_ = 0;
};

/// A std::vector of trivially copyable elements, as far as hfcomm uses it. It compiles to a fraction of the code.
template <class T>
class plain_list : public plain_memory {
  static_assert(std::is_trivially_copyable_v<T> && alignof(T) <= __STDCPP_DEFAULT_NEW_ALIGNMENT__);

 public:
  plain_list() = default;
  /// Makes a list of `count` elements of the value `T()`.
  explicit plain_list(std::size_t count) { resize(count); }

  [[nodiscard]] T* data() noexcept { return static_cast<T*>(data_); }
  [[nodiscard]] const T* data() const noexcept { return static_cast<const T*>(data_); }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }

  [[nodiscard]] T* begin() noexcept { return data(); }
  [[nodiscard]] T* end() noexcept { return data() + size_; }
  [[nodiscard]] const T* begin() const noexcept { return data(); }
  [[nodiscard]] const T* end() const noexcept { return data() + size_; }
  [[nodiscard]] T& operator[](std::size_t index) noexcept { return data()[index]; }
  [[nodiscard]] const T& operator[](std::size_t index) const noexcept { return data()[index]; }
  [[nodiscard]] T& back() noexcept { return data()[size_ - 1]; }

  void clear() noexcept { size_ = 0; }
  void reserve(std::size_t count) { reserve_elements(count, sizeof(T)); }
  void resize(std::size_t count) {
    reserve(count);
    for (; size_ < count; ++size_) {
      data()[size_] = T();
    }
    size_ = count;
  }
  void assign(std::size_t count, T value) {
    clear();
    reserve(count);
    for (; size_ < count; ++size_) {
      data()[size_] = value;
    }
  }
  void push_back(T value) { insert(size_, value); }
  void insert(std::size_t index, T value) {
    insert_room(index, sizeof(T));  // NOLINT
    data()[index] = value;
  }
  void erase(std::size_t index) noexcept { remove_element(index, sizeof(T)); }
};

}  // namespace hfcomm::detail
