// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <source_location>
#include <type_traits>

#include <hfcomm/core/device_span.hpp>
#include <hfcomm/cuda/owned_memory.hpp>

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
  explicit device_buffer(std::size_t size, std::source_location where = std::source_location::current())
      : memory_(cuda::owned_memory::on_device(size, sizeof(T), where)) {}

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
