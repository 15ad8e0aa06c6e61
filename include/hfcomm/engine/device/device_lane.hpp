// SPDX-License-Identifier: MIT
#pragma once

#include <mutex>
#include <source_location>
#include <vector>

#include <hfcomm/cuda/runtime_api.hpp>
#include <hfcomm/engine/device_engine.hpp>

namespace hfcomm::engines {

/// What an engine has of its own on one device: a stream, of a high priority, so that what others wait for comes before
/// computation that is queued; and marks. Both are made when they are first needed.
class device_lane {
 public:
  device_lane(const cuda::runtime_api& api, int device) : api_(api), device_(device) {}
  device_lane(const device_lane&) = delete;
  device_lane& operator=(const device_lane&) = delete;

  /// Gives everything back to CUDA. Not from the destructor: the process may be past the end of CUDA.
  void close() noexcept {
    for (const auto mark : all_) {
      (void)api_.cudaEventDestroy(mark);
    }
    if (stream_ != nullptr) {
      (void)api_.cudaStreamDestroy(stream_);
    }
  }

  [[nodiscard]] int device() const noexcept { return device_; }

  [[nodiscard]] stream_ref stream(const std::source_location& where) {
    const std::scoped_lock lock(mutex_);
    if (stream_ == nullptr) {
      const cuda::device_guard here(api_, device_);
      int least = 0;
      int greatest = 0;
      api_.check(api_.cudaDeviceGetStreamPriorityRange(&least, &greatest), "cudaDeviceGetStreamPriorityRange", where);
      api_.check(api_.cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, greatest),
                 "cudaStreamCreateWithPriority", where);
    }
    return stream_;
  }

  [[nodiscard]] device_engine::event take(const std::source_location& where) {
    const std::scoped_lock lock(mutex_);
    if (free_.empty()) {
      const cuda::device_guard here(api_, device_);
      all_.reserve(all_.size() + 1);
      free_.reserve(all_.capacity());  // so that `give_back` needs no memory
      cudaEvent_t mark = nullptr;
      api_.check(api_.cudaEventCreateWithFlags(&mark, cudaEventDisableTiming), "cudaEventCreateWithFlags", where);
      all_.push_back(mark);
      return mark;
    }
    const auto mark = free_.back();
    free_.pop_back();
    return mark;
  }
  /// False where it is not one of this lane's.
  bool give_back(device_engine::event mark) noexcept {
    const std::scoped_lock lock(mutex_);
    for (const auto one : all_) {
      if (one == mark) {
        free_.push_back(mark);
        return true;
      }
    }
    return false;
  }

 private:
  const cuda::runtime_api& api_;
  int device_;
  std::mutex mutex_;
  CUstream_st* stream_ = nullptr;
  std::vector<CUevent_st*> all_;
  std::vector<CUevent_st*> free_;
};

}  // namespace hfcomm::engines
