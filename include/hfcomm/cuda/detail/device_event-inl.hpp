// SPDX-License-Identifier: MIT
#pragma once

#include <hfcomm/core/config.hpp>
#include <hfcomm/cuda/device_event.hpp>
#include <hfcomm/cuda/runtime_api.hpp>
#include <hfcomm/machine/bounded_call.hpp>

namespace hfcomm {

HFCOMM_INLINE device_event::device_event(timing timed, std::source_location where)
    : api_(&cuda::runtime(where)), event_(nullptr, {api_}) {
  engines::process_end::watch();
  CUevent_st* made = nullptr;
  api_->check(api_->cudaEventCreateWithFlags(
                  &made, timed == timing::on ? cudaEventDefault : static_cast<unsigned>(cudaEventDisableTiming)),
              "cudaEventCreateWithFlags", where);
  event_.reset(made);
}

HFCOMM_INLINE void device_event::record(stream_ref stream, std::source_location where) {
  api_->check(api_->cudaEventRecord(get(), stream.get()), "cudaEventRecord", where);
}

HFCOMM_INLINE void device_event::order(stream_ref stream, std::source_location where) const {
  api_->check(api_->cudaStreamWaitEvent(stream.get(), get(), 0), "cudaStreamWaitEvent", where);
}

HFCOMM_INLINE bool device_event::done(std::source_location where) const {
  return api_->is_ready(api_->cudaEventQuery(get()), "cudaEventQuery", where);
}

HFCOMM_INLINE void device_event::synchronize(std::source_location where) const {
  api_->check(api_->cudaEventSynchronize(get()), "cudaEventSynchronize", where);
}

HFCOMM_INLINE std::chrono::duration<double, std::milli> device_event::since(const device_event& start,
                                                                            std::source_location where) const {
  float milliseconds = 0;
  api_->check(api_->cudaEventElapsedTime(&milliseconds, start.get(), get()), "cudaEventElapsedTime", where);
  return std::chrono::duration<double, std::milli>(milliseconds);
}

HFCOMM_INLINE void device_event::destroyer::operator()(CUevent_st* event) const noexcept {
  if (!engines::process_end::begun()) {
    (void)api->cudaEventDestroy(event);
  }
}

}  // namespace hfcomm
