// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <source_location>
#include <utility>

#include <hfcomm/core/stream_ref.hpp>
#include <hfcomm/cuda/runtime_api.hpp>
#include <hfcomm/machine/bounded_call.hpp>

namespace hfcomm {

/// A mark on a stream of the device that was current when it was made; owned. Move-only. Every function throws
/// engine_error with CUDA's reason.
class device_event {
 public:
  enum class timing : bool { off, on };

  /// With timing off, which costs less, `since` is not there.
  explicit device_event(timing timed = timing::off, std::source_location where = std::source_location::current())
      : api_(&cuda::runtime(where)) {
    engines::process_end::watch();
    api_->check(api_->cudaEventCreateWithFlags(
                    &event_, timed == timing::on ? cudaEventDefault : static_cast<unsigned>(cudaEventDisableTiming)),
                "cudaEventCreateWithFlags", where);
  }
  device_event(device_event&& other) noexcept : api_(other.api_), event_(std::exchange(other.event_, nullptr)) {}
  device_event& operator=(device_event&& other) noexcept {
    if (this != &other) {
      destroy();
      api_ = other.api_;
      event_ = std::exchange(other.event_, nullptr);
    }
    return *this;
  }
  ~device_event() { destroy(); }

  [[nodiscard]] CUevent_st* get() const noexcept { return event_; }

  /// Marks the place behind what is on the stream by now. A place that was marked before is forgotten.
  void record(stream_ref stream, std::source_location where = std::source_location::current()) {
    api_->check(api_->cudaEventRecord(event_, stream.get()), "cudaEventRecord", where);
  }
  /// What is put on `stream` from here on begins when the mark has been reached; at once where nothing was marked.
  void order(stream_ref stream, std::source_location where = std::source_location::current()) const {
    api_->check(api_->cudaStreamWaitEvent(stream.get(), event_, 0), "cudaStreamWaitEvent", where);
  }
  /// Whether the mark has been reached. Never blocks.
  [[nodiscard]] bool done(std::source_location where = std::source_location::current()) const {
    const cudaError_t status = api_->cudaEventQuery(event_);
    if (status == cudaErrorNotReady) {
      (void)api_->cudaGetLastError();
      return false;
    }
    api_->check(status, "cudaEventQuery", where);
    return true;
  }
  /// Blocks the host until the mark has been reached, for however long: `hfcomm::synchronize` also watches the ranks.
  void synchronize(std::source_location where = std::source_location::current()) const {
    api_->check(api_->cudaEventSynchronize(event_), "cudaEventSynchronize", where);
  }
  /// The device's time from one mark to this one. Both have been reached, and have timing on.
  [[nodiscard]] std::chrono::duration<double, std::milli> since(
      const device_event& start, std::source_location where = std::source_location::current()) const {
    float milliseconds = 0;
    api_->check(api_->cudaEventElapsedTime(&milliseconds, start.event_, event_), "cudaEventElapsedTime", where);
    return std::chrono::duration<double, std::milli>(milliseconds);
  }

 private:
  void destroy() noexcept {
    if (event_ != nullptr && !engines::process_end::begun()) {
      (void)api_->cudaEventDestroy(event_);
    }
  }

  const cuda::runtime_api* api_;
  cudaEvent_t event_ = nullptr;
};

}  // namespace hfcomm
