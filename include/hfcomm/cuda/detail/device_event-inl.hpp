// SPDX-License-Identifier: MIT
#pragma once

#include <utility>

#include <hfcomm/core/config.hpp>
#include <hfcomm/cuda/device_event.hpp>
#include <hfcomm/cuda/runtime_api.hpp>
#include <hfcomm/machine/bounded_call.hpp>

namespace hfcomm {

HFCOMM_INLINE device_event::device_event(timing timed, std::source_location where) : api_(&cuda::runtime(where)) {
  engines::process_end::watch();
  api_->check(api_->cudaEventCreateWithFlags(
                  &event_, timed == timing::on ? cudaEventDefault : static_cast<unsigned>(cudaEventDisableTiming)),
              "cudaEventCreateWithFlags", where);
}

HFCOMM_INLINE device_event::device_event(device_event&& other) noexcept
    : api_(other.api_), event_(std::exchange(other.event_, nullptr)) {}

HFCOMM_INLINE device_event& device_event::operator=(device_event&& other) noexcept {
  if (this != &other) {
    destroy();
    api_ = other.api_;
    event_ = std::exchange(other.event_, nullptr);
  }
  return *this;
}

HFCOMM_INLINE void device_event::record(stream_ref stream, std::source_location where) {
  api_->check(api_->cudaEventRecord(event_, stream.get()), "cudaEventRecord", where);
}

HFCOMM_INLINE void device_event::order(stream_ref stream, std::source_location where) const {
  api_->check(api_->cudaStreamWaitEvent(stream.get(), event_, 0), "cudaStreamWaitEvent", where);
}

HFCOMM_INLINE bool device_event::done(std::source_location where) const {
  const cudaError_t status = api_->cudaEventQuery(event_);
  if (status == cudaErrorNotReady) {
    (void)api_->cudaGetLastError();
    return false;
  }
  api_->check(status, "cudaEventQuery", where);
  return true;
}

HFCOMM_INLINE void device_event::synchronize(std::source_location where) const {
  api_->check(api_->cudaEventSynchronize(event_), "cudaEventSynchronize", where);
}

HFCOMM_INLINE std::chrono::duration<double, std::milli> device_event::since(const device_event& start,
                                                                            std::source_location where) const {
  float milliseconds = 0;
  api_->check(api_->cudaEventElapsedTime(&milliseconds, start.event_, event_), "cudaEventElapsedTime", where);
  return std::chrono::duration<double, std::milli>(milliseconds);
}

HFCOMM_INLINE void device_event::destroy() noexcept {
  if (event_ != nullptr && !engines::process_end::begun()) {
    (void)api_->cudaEventDestroy(event_);
  }
}

}  // namespace hfcomm
