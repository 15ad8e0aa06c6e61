// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/cuda/nccl_api.hpp>
#include <hfcomm/engine/nccl/communicator.hpp>

namespace hfcomm::engines {

/// A group's communicators, one for each device that it was connected on.
///
/// Thread-safety: the thread that operates calls, and looks up communicators without a lock. Any thread may call
/// `async_error` and `abort`.
class nccl_communicators {
 public:
  /// Adds a communicator. It replaces the one of the same device, where there is one.
  void add(std::unique_ptr<nccl_communicator> made) {
    const std::scoped_lock lock(mutex_);
    auto& place = by_device_.at(static_cast<std::size_t>(made->device()));
    auto* const before = place.exchange(made.get());
    if (before != nullptr) {
      before->destroy();
    }
    only_ = owned_.empty() || (before != nullptr && only_ == before) ? made.get() : nullptr;
    owned_.push_back(std::move(made));
  }

  /// Returns the only communicator; null where there are several, or none.
  [[nodiscard]] nccl_communicator* only() const noexcept { return only_; }
  [[nodiscard]] nccl_communicator& latest() const noexcept { return *owned_.back(); }
  /// Returns the device's communicator, or null. Throws std::out_of_range for a device number beyond the limit.
  [[nodiscard]] nccl_communicator* at(int device) const {
    return by_device_.at(static_cast<std::size_t>(device)).load(std::memory_order_acquire);
  }
  /// Returns the device's communicator, or null.
  [[nodiscard]] nccl_communicator* find(int device) const noexcept {
    const auto index = static_cast<std::size_t>(device);
    return index < by_device_.size() ? by_device_[index].load(std::memory_order_acquire) : nullptr;
  }

  /// Describes the devices that have a communicator.
  [[nodiscard]] std::string describe_devices() const {
    std::string devices;
    for (std::size_t device = 0; device < by_device_.size(); ++device) {
      if (by_device_[device].load() != nullptr) {
        detail::append(devices, {devices.empty() ? "it has one for device " : ", ", device});
      }
    }
    return devices;
  }

  /// Returns the first asynchronous error that NCCL reports.
  [[nodiscard]] ncclResult_t async_error(const cuda::nccl_api& api) {
    ncclResult_t state = ncclSuccess;
    const std::scoped_lock lock(mutex_);
    for (const auto& one : owned_) {
      if (one->get() != nullptr && state == ncclSuccess) {
        (void)api.ncclCommGetAsyncError(one->get(), &state);
      }
    }
    return state;
  }

  /// Aborts all communicators. `state` is the state of the thread that operates; null where none does.
  void abort(const shared_thread_state& state) noexcept {
    const std::scoped_lock lock(mutex_);
    for (const auto& one : owned_) {
      one->abort(state);
    }
  }

  /// Destroys all communicators after the operations on them have ended.
  void destroy() noexcept {
    for (const auto& one : owned_) {
      one->destroy();
    }
  }
  /// Forgets all communicators without a call of NCCL, which is not in this process, or may be gone.
  void leak() noexcept {
    for (auto& one : owned_) {
      (void)one.release();  // NOLINT(*unused-return-value)
    }
  }

 private:
  std::mutex mutex_;  // of `owned_`; look-ups only read `by_device_`
  std::vector<std::unique_ptr<nccl_communicator>> owned_;
  std::array<std::atomic<nccl_communicator*>, 64> by_device_{};
  nccl_communicator* only_ = nullptr;
};

}  // namespace hfcomm::engines
