// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <memory>
#include <source_location>
#include <type_traits>
#include <utility>

#include <hfcomm/call/call.hpp>
#include <hfcomm/core/device_span.hpp>

namespace hfcomm {

namespace detail {

/// Returns memory for `count` elements of `width` bytes. Collective.
std::shared_ptr<std::byte> allocate_registered(operation call, std::size_t count, std::size_t width,
                                               const process_group& group);

}  // namespace detail

/// Elements in memory of the current device that NCCL knows: device operations of this group on it need no copies of
/// their own, where the machine allows that (ncclMemAlloc, and a symmetric window of it, since NCCL 2.27; a registered
/// buffer before). For buffers that are used again and again, such as gradients. A device range; for other groups, and
/// for kernels, memory like any other. Not initialized.
///
/// Making one is collective, with the same number of elements on all ranks (mismatch_error otherwise); it connects the
/// group if it is not (see connect_device). Where it fails on one rank it throws on all; where it was NCCL's part that
/// failed, the group's device plane is lost. Dropping one waits, for a bounded time, until the device has come to an
/// end with what it was given; it counts as using the group, and all ranks make and drop theirs in the same order, on
/// which NCCL relies to find them. It may outlive its group. Moved, not copied.
///
/// An operation takes registered memory on all ranks, at the same place in it, or on none: NCCL chooses its kernels by
/// it, on each rank by itself.
template <class T>
  requires std::is_trivially_copyable_v<T>
class registered_buffer {
 public:
  using value_type = T;

  registered_buffer() noexcept = default;
  explicit registered_buffer(std::size_t size, const process_group& group = world(),
                             std::source_location where = std::source_location::current())
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
