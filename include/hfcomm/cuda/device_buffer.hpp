// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <limits>
#include <new>
#include <source_location>
#include <type_traits>
#include <utility>

#include <hfcomm/cuda/device_span.hpp>
#include <hfcomm/cuda/runtime_api.hpp>
#include <hfcomm/engines/bounded_call.hpp>

namespace hfcomm {

/// Elements in the memory of the device that was current when it was made; owned, not initialized. A device range:
/// device operations take it as it is.
///
/// Freeing waits for the device, as cudaFree does: keep buffers rather than making new ones. Move-only.
template <class T>
  requires std::is_trivially_copyable_v<T>
class device_buffer {
 public:
  using value_type = T;

  device_buffer() noexcept = default;
  /// Throws engine_error with CUDA's reason, or where there is no CUDA; std::bad_array_new_length for what no memory
  /// has room for.
  explicit device_buffer(std::size_t size, std::source_location where = std::source_location::current()) : size_(size) {
    if (size > static_cast<std::size_t>(std::numeric_limits<std::ptrdiff_t>::max()) / sizeof(T)) {
      throw std::bad_array_new_length();
    }
    if (size != 0) {
      void* memory = nullptr;
      api_ = &cuda::runtime(where);
      engines::process_end::watch();
      api_->check(api_->cudaMalloc(&memory, size * sizeof(T)), "cudaMalloc", where);
      data_ = static_cast<T*>(memory);
    }
  }
  device_buffer(device_buffer&& other) noexcept
      : api_(other.api_), data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  device_buffer& operator=(device_buffer&& other) noexcept {
    if (this != &other) {
      free();
      api_ = other.api_;
      data_ = std::exchange(other.data_, nullptr);
      size_ = std::exchange(other.size_, 0);
    }
    return *this;
  }
  ~device_buffer() { free(); }

  [[nodiscard]] T* data() noexcept { return data_; }
  [[nodiscard]] const T* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
  [[nodiscard]] device_span<T> span() noexcept { return {data_, size_}; }
  [[nodiscard]] device_span<const T> span() const noexcept { return {data_, size_}; }

 private:
  void free() noexcept {
    if (data_ != nullptr && !engines::process_end::begun()) {
      (void)api_->cudaFree(data_);
    }
  }

  const cuda::runtime_api* api_ = nullptr;
  T* data_ = nullptr;
  std::size_t size_ = 0;
};

template <class T>
inline constexpr bool enable_device_range<device_buffer<T>> = true;

}  // namespace hfcomm
