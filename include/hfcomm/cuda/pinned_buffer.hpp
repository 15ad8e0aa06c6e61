// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>
#include <new>
#include <source_location>
#include <type_traits>
#include <utility>

#include <hfcomm/concepts.hpp>
#include <hfcomm/cuda/runtime_api.hpp>
#include <hfcomm/engines/bounded_call.hpp>

namespace hfcomm {

/// Elements in host memory that devices copy to and from without the host's help (page-locked), on any device; zeros at
/// first. It is host memory: a contiguous range, which host operations take as they take a span. Move-only.
template <class T>
  requires std::is_trivially_copyable_v<T>
class pinned_buffer {
 public:
  using value_type = T;

  pinned_buffer() noexcept = default;
  /// Throws engine_error with CUDA's reason, or where there is no CUDA; std::bad_array_new_length for what no memory
  /// has room for.
  explicit pinned_buffer(std::size_t size, std::source_location where = std::source_location::current()) : size_(size) {
    if (size > static_cast<std::size_t>(std::numeric_limits<std::ptrdiff_t>::max()) / sizeof(T)) {
      throw std::bad_array_new_length();
    }
    if (size != 0) {
      void* memory = nullptr;
      api_ = &cuda::runtime(where);
      engines::process_end::watch();
      api_->check(api_->cudaHostAlloc(&memory, size * sizeof(T), cudaHostAllocPortable), "cudaHostAlloc", where);
      data_ = static_cast<T*>(memory);
      std::fill_n(static_cast<std::byte*>(memory), size * sizeof(T), std::byte{});
    }
  }
  pinned_buffer(pinned_buffer&& other) noexcept
      : api_(other.api_), data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  pinned_buffer& operator=(pinned_buffer&& other) noexcept {
    if (this != &other) {
      free();
      api_ = other.api_;
      data_ = std::exchange(other.data_, nullptr);
      size_ = std::exchange(other.size_, 0);
    }
    return *this;
  }
  ~pinned_buffer() { free(); }

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

 private:
  void free() noexcept {
    if (data_ != nullptr && !engines::process_end::begun()) {
      (void)api_->cudaFreeHost(data_);
    }
  }

  const cuda::runtime_api* api_ = nullptr;
  T* data_ = nullptr;
  std::size_t size_ = 0;
};

template <class T>
inline constexpr bool enable_buffer_view<pinned_buffer<T>> = true;

}  // namespace hfcomm
