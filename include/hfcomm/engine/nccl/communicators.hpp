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

#include <hfcomm/cuda/nccl_api.hpp>
#include <hfcomm/engine/nccl/communicator.hpp>

namespace hfcomm::engines {

/// A group's communicators, one for each device that it was connected on.
///
/// Thread-safety: one thread operates, and so calls what is not said to be for any thread. It looks up communicators
/// without a lock.
class nccl_communicators {
 public:
  /// Instead of the one of the same device, where there is one.
  void adopt(std::unique_ptr<nccl_communicator> made) {
    const std::scoped_lock lock(mutex_);
    auto& place = by_device_.at(static_cast<std::size_t>(made->device()));
    auto* const before = place.exchange(made.get());
    if (before != nullptr) {
      before->destroy();
    }
    only_ = owned_.empty() || (before != nullptr && only_ == before) ? made.get() : nullptr;
    owned_.push_back(std::move(made));
  }

  /// Null unless there is just one.
  [[nodiscard]] nccl_communicator* only() const noexcept { return only_; }
  [[nodiscard]] nccl_communicator& latest() const noexcept { return *owned_.back(); }
  /// The device's, or null. Throws std::out_of_range for a device that can have none.
  [[nodiscard]] nccl_communicator* at(int device) const {
    return by_device_.at(static_cast<std::size_t>(device)).load(std::memory_order_acquire);
  }
  /// The device's, or null.
  [[nodiscard]] nccl_communicator* find(int device) const noexcept {
    const auto index = static_cast<std::size_t>(device);
    return index < by_device_.size() ? by_device_[index].load(std::memory_order_acquire) : nullptr;
  }

  /// The devices there is one for, in words.
  [[nodiscard]] std::string text() const {
    std::string devices;
    for (std::size_t device = 0; device < by_device_.size(); ++device) {
      if (by_device_[device].load() != nullptr) {
        devices += (devices.empty() ? "it has one for device " : ", ") + std::to_string(device);
      }
    }
    return devices;
  }

  /// What has gone wrong in one of them, as far as NCCL knows. For any thread.
  [[nodiscard]] ncclResult_t problem(const cuda::nccl_api& api) {
    ncclResult_t state = ncclSuccess;
    const std::scoped_lock lock(mutex_);
    for (const auto& one : owned_) {
      if (one->get() != nullptr && state == ncclSuccess) {
        (void)api.ncclCommGetAsyncError(one->get(), &state);
      }
    }
    return state;
  }

  /// For any thread; `inside` is where the one that operates is.
  void abort(const shared_whereabouts& inside) noexcept {
    const std::scoped_lock lock(mutex_);
    for (const auto& one : owned_) {
      one->abort(inside);
    }
  }

  /// At the end. `in_vain`: what is under way would never be done.
  void end(bool in_vain) noexcept {
    for (const auto& one : owned_) {
      in_vain ? one->abort() : one->destroy();
    }
  }
  /// Instead, where NCCL is not in this process, or may be gone: what is left of it is left to itself.
  void release() noexcept {
    for (auto& one : owned_) {
      (void)one.release();  // NOLINT(*unused-return-value)
    }
  }

 private:
  std::mutex mutex_;  // look-ups only read what `by_device_` points to
  std::vector<std::unique_ptr<nccl_communicator>> owned_;
  std::array<std::atomic<nccl_communicator*>, 64> by_device_{};
  nccl_communicator* only_ = nullptr;
};

}  // namespace hfcomm::engines
