// SPDX-License-Identifier: MIT
#pragma once

#include <mutex>
#include <source_location>
#include <vector>

#include <hfcomm/cuda/runtime_api.hpp>
#include <hfcomm/engine/device_engine.hpp>

namespace hfcomm::engines {

/// The stream and the events that an engine owns on one device. Each is made when it is first needed. The stream has
/// the highest priority, so that communication, for which other ranks wait, comes before queued computation. Any thread
/// may call.
class device_resources {
 public:
  device_resources(const cuda::runtime_api& api, int device) : api_(api), device_(device) {}
  device_resources(const device_resources&) = delete;
  device_resources& operator=(const device_resources&) = delete;

  /// Destroys the stream and the events. The destructor does not, because the process may be past the end of CUDA.
  void destroy() noexcept {
    for (auto* const event : all_events_) {
      (void)api_.cudaEventDestroy(event);
    }
    if (stream_ != nullptr) {
      (void)api_.cudaStreamDestroy(stream_);
    }
  }

  [[nodiscard]] stream_ref stream(const std::source_location& where) {
    const std::scoped_lock lock(mutex_);
    if (stream_ == nullptr) {
      const cuda::device_guard on_device(api_, device_);
      int least = 0;
      int greatest = 0;
      api_.check(api_.cudaDeviceGetStreamPriorityRange(&least, &greatest), "cudaDeviceGetStreamPriorityRange", where);
      api_.check(api_.cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, greatest),
                 "cudaStreamCreateWithPriority", where);
    }
    return stream_;
  }

  /// Returns an event that nobody else uses, until `give_back`.
  [[nodiscard]] device_engine::event_handle take_event(const std::source_location& where) {
    const std::scoped_lock lock(mutex_);
    if (free_events_.empty()) {
      const cuda::device_guard on_device(api_, device_);
      all_events_.reserve(all_events_.size() + 1);
      free_events_.reserve(all_events_.capacity());  // so that `give_back` needs no memory
      cudaEvent_t event = nullptr;
      api_.check(api_.cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreateWithFlags", where);
      all_events_.push_back(event);
      return event;
    }
    auto* const event = free_events_.back();
    free_events_.pop_back();
    return event;
  }
  /// Returns false where the event belongs to another device.
  bool give_back(device_engine::event_handle event) noexcept {
    const std::scoped_lock lock(mutex_);
    for (auto* const one : all_events_) {
      if (one == event) {
        free_events_.push_back(event);
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
  std::vector<CUevent_st*> all_events_;
  std::vector<CUevent_st*> free_events_;
};

}  // namespace hfcomm::engines
