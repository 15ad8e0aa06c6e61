// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <memory>
#include <type_traits>
#include <utility>

#include <hfcomm/call/typed_calls.hpp>
#include <hfcomm/core/call_site.hpp>
#include <hfcomm/core/device_span.hpp>

namespace hfcomm {

namespace detail {

/// Returns memory for `count` elements of `width` bytes. Collective.
std::shared_ptr<std::byte> allocate_registered(operation call, std::size_t count, std::size_t width,
                                               const process_group& group);

}  // namespace detail

/// Elements in memory of the current device that is registered with NCCL. This group's operations on it need no copies
/// in NCCL, where the machine allows that. It is for buffers that are used again and again, such as gradients. For
/// other groups and for kernels it is ordinary device memory. A device range, not initialized, move-only.
///
/// The memory comes from ncclMemAlloc, and is a symmetric window since NCCL 2.27, a registered buffer before that.
///
/// The constructor is collective, with the same number of elements on all ranks (mismatch_error otherwise). It connects
/// the group where it is not connected (see connect_device). Where it fails on one rank, it throws on all. Where NCCL's
/// registration is what fails, the group is broken.
///
/// The destructor waits, for a bounded time, until the device has done its work. It counts as a use of the group. All
/// ranks make and destroy their buffers in the same order, because NCCL finds a buffer by it. A buffer may outlive its
/// group.
///
/// An operation uses registered memory on all ranks, at the same offset, or on none: each rank's NCCL chooses its
/// kernels by it.
template <class T>
  requires std::is_trivially_copyable_v<T>
class registered_buffer {
 public:
  using value_type = T;

  registered_buffer() noexcept = default;
  explicit registered_buffer(std::size_t size, const process_group& group = world(),
                             call_site where = call_site::current())
      : size_(size) {
    memory_ = detail::allocate_registered(
        detail::buffer_call<T>("registered_buffer", engines::movement::none, size, -1, where), size, sizeof(T), group);
  }
  registered_buffer(registered_buffer&& other) noexcept
      : memory_(std::move(other.memory_)), size_(std::exchange(other.size_, 0)) {}
  registered_buffer& operator=(registered_buffer&& other) noexcept {
    memory_ = std::move(other.memory_);
    size_ = std::exchange(other.size_, 0);
    return *this;
  }
  ~registered_buffer() = default;

  [[nodiscard]] T* data() noexcept { return reinterpret_cast<T*>(memory_.get()); }
  [[nodiscard]] const T* data() const noexcept { return reinterpret_cast<const T*>(memory_.get()); }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
  [[nodiscard]] device_span<T> span() noexcept { return {data(), size_}; }
  [[nodiscard]] device_span<const T> span() const noexcept { return {data(), size_}; }

 private:
  std::shared_ptr<std::byte> memory_;
  std::size_t size_ = 0;
};

template <class T>
inline constexpr bool enable_device_range<registered_buffer<T>> = true;

}  // namespace hfcomm
