// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <type_traits>

#include <hfcomm/core/call_site.hpp>
#include <hfcomm/core/device_span.hpp>
#include <hfcomm/cuda/owned_memory.hpp>

namespace hfcomm {

/// Elements in memory of the device that is current in the constructor. It owns the memory, and does not initialize it.
/// It is a device range, so device operations take it. Move-only.
///
/// The destructor waits for the device, as cudaFree does, so keep buffers rather than making new ones.
template <class T>
  requires std::is_trivially_copyable_v<T>
class device_buffer {
 public:
  using value_type = T;

  device_buffer() noexcept = default;
  /// Throws engine_error where CUDA fails or is not found, and std::bad_array_new_length where the size in bytes
  /// overflows.
  explicit device_buffer(std::size_t size, call_site where = call_site::current())
      : memory_(cuda::owned_memory::place::device, size, sizeof(T), where) {}

  [[nodiscard]] T* data() noexcept { return static_cast<T*>(memory_.data()); }
  [[nodiscard]] const T* data() const noexcept { return static_cast<const T*>(memory_.data()); }
  [[nodiscard]] std::size_t size() const noexcept { return memory_.count(); }
  [[nodiscard]] bool empty() const noexcept { return size() == 0; }
  [[nodiscard]] device_span<T> span() noexcept { return {data(), size()}; }
  [[nodiscard]] device_span<const T> span() const noexcept { return {data(), size()}; }

 private:
  cuda::owned_memory memory_;
};

template <class T>
inline constexpr bool enable_device_range<device_buffer<T>> = true;

}  // namespace hfcomm
