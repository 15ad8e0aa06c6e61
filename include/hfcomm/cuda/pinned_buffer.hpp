// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <type_traits>

#include <hfcomm/core/call_site.hpp>
#include <hfcomm/core/concepts.hpp>
#include <hfcomm/cuda/owned_memory.hpp>

namespace hfcomm {

/// Elements in page-locked host memory, which all devices copy to and from without the host. They are zeros at first.
/// It is a contiguous range in host memory, which host operations take as they take a span. Move-only.
template <class T>
  requires std::is_trivially_copyable_v<T>
class pinned_buffer {
 public:
  using value_type = T;

  pinned_buffer() noexcept = default;
  /// Throws engine_error where CUDA fails or is not found, and std::bad_array_new_length where the size in bytes
  /// overflows.
  explicit pinned_buffer(std::size_t size, call_site where = call_site::current())
      : memory_(cuda::owned_memory::place::pinned_host, size, sizeof(T), where) {}

  [[nodiscard]] T* data() noexcept { return static_cast<T*>(memory_.data()); }
  [[nodiscard]] const T* data() const noexcept { return static_cast<const T*>(memory_.data()); }
  [[nodiscard]] std::size_t size() const noexcept { return memory_.count(); }
  [[nodiscard]] bool empty() const noexcept { return size() == 0; }
  [[nodiscard]] T* begin() noexcept { return data(); }
  [[nodiscard]] T* end() noexcept { return data() + size(); }
  [[nodiscard]] const T* begin() const noexcept { return data(); }
  [[nodiscard]] const T* end() const noexcept { return data() + size(); }
  [[nodiscard]] T& operator[](std::size_t index) noexcept { return data()[index]; }
  [[nodiscard]] const T& operator[](std::size_t index) const noexcept { return data()[index]; }

 private:
  cuda::owned_memory memory_;
};

template <class T>
inline constexpr bool enable_buffer_view<pinned_buffer<T>> = true;

}  // namespace hfcomm
