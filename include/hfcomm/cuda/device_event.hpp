// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <source_location>

#include <hfcomm/core/stream_ref.hpp>

namespace hfcomm {

namespace cuda {

struct runtime_api;

}  // namespace cuda

/// A mark on a stream of the device that was current when it was made; owned. Move-only. Every function throws
/// engine_error with CUDA's reason.
class device_event {
 public:
  enum class timing : bool { off, on };

  /// With timing off, which costs less, `since` is not there.
  explicit device_event(timing timed = timing::off, std::source_location where = std::source_location::current());
  device_event(device_event&& other) noexcept;
  device_event& operator=(device_event&& other) noexcept;
  ~device_event() { destroy(); }

  [[nodiscard]] CUevent_st* get() const noexcept { return event_; }

  /// Marks the place behind what is on the stream by now. A place that was marked before is forgotten.
  void record(stream_ref stream, std::source_location where = std::source_location::current());
  /// What is put on `stream` from here on begins when the mark has been reached; at once where nothing was marked.
  void order(stream_ref stream, std::source_location where = std::source_location::current()) const;
  /// Returns whether the mark has been reached. Never blocks.
  [[nodiscard]] bool done(std::source_location where = std::source_location::current()) const;
  /// Blocks the host until the mark has been reached, for however long: `hfcomm::synchronize` also watches the ranks.
  void synchronize(std::source_location where = std::source_location::current()) const;
  /// The device's time from one mark to this one. Both have been reached, and have timing on.
  [[nodiscard]] std::chrono::duration<double, std::milli> since(
      const device_event& start, std::source_location where = std::source_location::current()) const;

 private:
  void destroy() noexcept;

  const cuda::runtime_api* api_;
  CUevent_st* event_ = nullptr;
};

}  // namespace hfcomm
