// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <memory>
#include <ratio>

#include <hfcomm/core/call_site.hpp>
#include <hfcomm/core/stream_ref.hpp>

namespace hfcomm {

namespace cuda {

struct runtime_api;

}  // namespace cuda

/// A CUDA event, of the device that is current in the constructor. It marks a point in a stream. It owns the event.
/// Move-only. Every function throws engine_error where CUDA fails.
class device_event {
 public:
  enum class timing : bool { off, on };

  /// Makes an event. `since` needs timing, which costs more.
  explicit device_event(timing timed = timing::off, call_site where = call_site::current());

  [[nodiscard]] CUevent_st* get() const noexcept { return event_.get(); }

  /// Records the point after the work already on the stream. It replaces the point that was recorded before.
  void record(stream_ref stream, call_site where = call_site::current());
  /// Makes the following work on `stream` wait until the event is reached. It does not wait where nothing was recorded.
  void order(stream_ref stream, call_site where = call_site::current()) const;
  /// Returns whether the event has been reached. Never blocks.
  [[nodiscard]] bool done(call_site where = call_site::current()) const;
  /// Waits on the host until the event is reached, without a deadline. `hfcomm::synchronize` also checks for lost
  /// ranks.
  void synchronize(call_site where = call_site::current()) const;
  /// Returns the device's time from `start` to this event. Both have been reached, and have timing.
  [[nodiscard]] std::chrono::duration<double, std::milli> since(const device_event& start,
                                                                call_site where = call_site::current()) const;

 private:
  struct destroyer {
    const cuda::runtime_api* api;
    void operator()(CUevent_st* event) const noexcept;
  };

  const cuda::runtime_api* api_;
  std::unique_ptr<CUevent_st, destroyer> event_;
};

}  // namespace hfcomm
