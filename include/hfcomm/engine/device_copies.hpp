// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <source_location>
#include <span>
#include <string>

#include <hfcomm/core/config.hpp>
#include <hfcomm/core/error.hpp>
#include <hfcomm/core/stream_ref.hpp>
#include <hfcomm/engine/device_engine.hpp>

namespace hfcomm::engines {

/// Copies between the memory of one device and host memory, on two streams of its own: one for each direction, because
/// the bus carries both at once. It knows no other rank, and needs CUDA alone.
///
/// Every function puts work on a stream and returns at once. It throws engine_error where CUDA fails. The destructor
/// waits for the copies, for a bounded time, before it frees what they use.
///
/// Any thread may put work on streams and call `is_reached`. One thread at a time calls the other functions.
class device_copies {
 public:
  using event_handle = CUevent_st*;

  device_copies() = default;
  device_copies(const device_copies&) = delete;
  device_copies& operator=(const device_copies&) = delete;
  virtual ~device_copies() = default;

  /// Returns the stream of copies from the device to the host.
  [[nodiscard]] virtual stream_ref down() const noexcept = 0;
  /// Returns the stream of copies from the host to the device.
  [[nodiscard]] virtual stream_ref up() const noexcept = 0;

  /// Makes the device the current one of the calling thread. A new thread does this before anything else.
  virtual void use_device() const noexcept = 0;
  /// Describes why memory is not of this device; empty: it is.
  [[nodiscard]] virtual std::string problem_of(device_memory memory) = 0;

  /// Page-locks host memory (cudaHostRegister), so that copies need no host. `owner` keeps it until it is unlocked,
  /// with this object.
  virtual void register_memory(std::shared_ptr<void> owner, std::span<std::byte> memory,
                               std::source_location where) = 0;
  /// Returns zeros in the device's memory, for work that comes later on `stream`.
  [[nodiscard]] virtual std::shared_ptr<std::byte> allocate(std::size_t bytes, stream_ref stream,
                                                            std::source_location where) = 0;

  /// Copies to the host, on the stream `down`.
  virtual void copy_down(const std::byte* from, std::byte* to, std::size_t bytes, std::source_location where) = 0;
  /// Copies to the device, on the stream `up`.
  virtual void copy_up(const std::byte* from, std::byte* to, std::size_t bytes, std::source_location where) = 0;
  /// Copies within the device.
  virtual void copy_within(const std::byte* from, std::byte* to, std::size_t bytes, stream_ref stream,
                           std::source_location where) = 0;

  /// Returns an event that lives as long as this object. It counts as reached until it is recorded.
  [[nodiscard]] virtual event_handle make_event(std::source_location where) = 0;
  /// Makes the event one that is reached after the work that is on the stream by now. Throws usage_error where the
  /// stream is capturing a graph.
  virtual void record(event_handle event, stream_ref stream, std::source_location where) = 0;
  /// Makes the following work on the stream wait until the event is reached.
  virtual void order(stream_ref stream, event_handle event, std::source_location where) = 0;
  [[nodiscard]] virtual bool is_reached(event_handle event, std::source_location where) = 0;
};

}  // namespace hfcomm::engines

namespace hfcomm::detail {

using engines::device_copies;

/// The function that makes copies for the current device. <hfcomm/nccl.hpp> sets it, which alone includes CUDA's
/// headers. It is null in a program that was compiled without that header. `context` is that of the copies' errors.
using device_copies_factory = std::unique_ptr<device_copies> (*)(const error_context& context);
HFCOMM_PROCESS_STATE inline std::atomic<device_copies_factory>& device_copies_maker() noexcept {
  static std::atomic<device_copies_factory> factory{nullptr};
  return factory;
}

}  // namespace hfcomm::detail
