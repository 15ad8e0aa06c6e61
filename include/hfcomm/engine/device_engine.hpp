// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include <hfcomm/core/config.hpp>
#include <hfcomm/core/stream_ref.hpp>
#include <hfcomm/engine/host_engine.hpp>
#include <hfcomm/engine/operation.hpp>

namespace hfcomm::engines {

/// A part of a device operation that goes to one rank, or comes from one.
struct device_part {
  int rank;
  std::byte* data;  ///< Only read where the part is sent.
  std::size_t bytes;
};

/// The address and length of an operation's device memory. They tell the device that the operation runs on.
struct device_memory {
  const void* data = nullptr;
  std::size_t bytes = 0;
};

/// Carries device memory between the ranks of one group. It is the counterpart of host_engine, and has one beside it,
/// over which the ranks agree.
///
/// An operation puts work on a stream and returns at once. Only `wait_for` waits for a device. Each operation comes
/// after a `begin`, and where it cannot be started, `refuse` takes its place. The caller has checked the lengths of
/// buffers, but not which device they are on.
///
/// One thread at a time calls operations; the process group sees to that. Any thread may call `wait_for`, `is_reached`,
/// `wait_for_event`, `release_event`, `check_operation`, `break_for_timeout` and `abort`.
class device_engine {
 public:
  /// A cudaEvent_t. An asynchronous operation ends with one.
  using event_handle = CUevent_st*;

  device_engine() = default;
  device_engine(const device_engine&) = delete;
  device_engine& operator=(const device_engine&) = delete;
  virtual ~device_engine() = default;

  // The group.

  [[nodiscard]] virtual std::string_view name() const noexcept = 0;
  /// Returns the number of the collective that was begun last, from 1. Messages are not counted, because not all ranks
  /// take part in them.
  [[nodiscard]] virtual std::uint64_t sequence() const noexcept = 0;

  /// Prepares operations on the current device. Collective over the host plane.
  virtual void connect(const operation& call) = 0;

  /// Returns the engine of a new group of some of these ranks, connected as this one is. `host` is the new group's host
  /// plane. The ranks of one new group give the same `color`. A rank that is in none gives a null `host` and gets null.
  /// Collective over the host plane of this group.
  virtual std::shared_ptr<device_engine> subgroup(const operation& call, std::shared_ptr<host_engine> host,
                                                  int color) = 0;

  // Around an operation.

  /// Begins an operation and returns its number; 0 for a message. Throws the group's error where the group is broken.
  virtual std::uint64_t begin(const operation& call) = 0;
  /// Tells the other ranks that this rank does not do its part, because their devices would wait for it for ever.
  virtual void announce_failure(std::uint64_t number, std::string_view why) noexcept = 0;

  // Operations.

  /// Reduces to every rank (movement::to_all) or to the root (movement::to_root).
  virtual void reduce(const operation& call, const void* in, void* out, std::size_t count, stream_ref stream) = 0;
  /// Reduces and leaves each rank `count` elements of the result. The ranks' parts lie in rank order in `in`.
  virtual void reduce_scatter(const operation& call, const void* in, void* out, std::size_t count,
                              stream_ref stream) = 0;
  /// The same with parts of different lengths: rank r gets `counts[r]` elements.
  virtual void reduce_scatter(const operation& call, const void* in, void* out, std::span<const std::size_t> counts,
                              stream_ref stream) = 0;
  virtual void broadcast(const operation& call, const void* in, void* out, std::size_t bytes, stream_ref stream) = 0;
  /// Gathers `bytes` of each rank, in rank order.
  virtual void all_gather(const operation& call, const void* in, void* out, std::size_t bytes, stream_ref stream) = 0;
  /// The same with parts of different lengths: rank r contributes `counts[r]` bytes.
  virtual void all_gather(const operation& call, const void* in, void* out, std::span<const std::size_t> counts,
                          stream_ref stream) = 0;
  /// Sends and receives all parts at once. Where this rank sends itself a part, it also receives one from itself.
  virtual void exchange_parts(const operation& call, std::span<const device_part> outgoing,
                              std::span<const device_part> incoming, stream_ref stream) = 0;
  /// Makes the following work on the stream wait until the streams of all ranks have reached their barriers.
  virtual void barrier(const operation& call, stream_ref stream) = 0;

  // Memory.

  /// Returns memory of the current device. Freeing it waits for the device. It may outlive the engine.
  virtual std::shared_ptr<std::byte> allocate(const operation& call, std::size_t bytes) = 0;
  /// Does the same, and registers the memory with NCCL where NCCL has a use for that. All ranks give the same `bytes`.
  /// Collective over the host plane.
  virtual std::shared_ptr<std::byte> allocate_registered(const operation& call, std::size_t bytes) = 0;
  /// Copies within a device. Throws usage_error, of which the other ranks are told, for memory of another device or of
  /// the host.
  virtual void copy(const operation& call, const void* in, void* out, std::size_t bytes, stream_ref stream) = 0;
  /// Sets all bits to 0.
  virtual void clear(const operation& call, void* out, std::size_t bytes, stream_ref stream) = 0;

  // Batches of operations, which NCCL calls groups.

  /// Begins a batch on this thread. The following operations may be deferred until `end_batch`.
  virtual void begin_batch(const operation& call) = 0;
  /// Ends the batch. Its operations are on their streams when this returns.
  virtual void end_batch(const operation& call) = 0;
  /// Returns whether this thread has begun a batch, of this engine or of another one of its kind.
  [[nodiscard]] virtual bool is_in_batch() const noexcept = 0;

  // Streams and events.

  /// Returns this engine's own stream on the memory's device, after making it wait for the work that is on `stream` by
  /// now.
  virtual stream_ref own_stream_after(const operation& call, device_memory memory, stream_ref stream) = 0;
  /// Returns an event that is reached once the work already on the stream is done. `release_event` frees it.
  virtual event_handle record_event(const operation& call, device_memory memory, stream_ref stream) = 0;
  /// Frees an event. Streams that wait for it are not affected.
  virtual void release_event(event_handle event) noexcept = 0;
  /// Makes the following work on the stream wait until the event is reached (cudaStreamWaitEvent).
  virtual void wait_for_event(const operation& call, event_handle event, stream_ref stream) = 0;
  /// Returns whether the stream is capturing a graph, into which its work goes instead of being run.
  virtual bool is_capturing(const operation& call, stream_ref stream) = 0;

  // CUDA's current device of the calling thread.

  [[nodiscard]] virtual int current_device() const = 0;
  /// Makes a device the current one. A new thread does this before anything else, which would use device 0.
  virtual void use_device(int device) const noexcept = 0;

  // Waiting on the host.

  /// A point in a stream: an event or, where that is null, the end of the work that is on the stream.
  struct target {
    event_handle event = nullptr;
    stream_ref stream = stream_ref::legacy_default();
  };
  /// Returns whether the target has been reached. Throws CUDA's error.
  virtual bool is_reached(const operation& call, target what) = 0;
  /// Waits until the target is reached and returns true, or returns false once `limit` has passed; zero or less is no
  /// limit. The operation's deadline holds in any case, and breaks the group. `number` is the operation to wait for.
  ///
  /// Throws peer_error, timeout_error or engine_error where the target will never be reached. Then the group is broken,
  /// and no kernel of this engine waits on the device any more.
  virtual bool wait_for(const operation& call, std::uint64_t number, target what, std::chrono::nanoseconds limit) = 0;

  // Failures.

  /// Throws where the operation can never end, after freeing the device. To be called now and then in a wait for it.
  virtual void check_operation(const operation& call, std::uint64_t number) = 0;
  /// Frees the device, breaks the group and throws timeout_error, because the operation's deadline has passed.
  [[noreturn]] virtual void break_for_timeout(const operation& call, std::uint64_t number) = 0;
  /// Ends all work on devices that waits for other ranks. Returns in bounded time. The group is broken afterwards.
  virtual void abort() noexcept = 0;
};

}  // namespace hfcomm::engines

namespace hfcomm::detail {

using engines::device_engine;
using engines::device_memory;
using engines::device_part;

/// The function that makes a group's device engine. <hfcomm/nccl.hpp> sets it, which alone includes CUDA's headers. It
/// is null in a program that was compiled without that header.
using device_engine_factory = std::shared_ptr<device_engine> (*)(const std::shared_ptr<host_engine>& host,
                                                                 const operation& call);
HFCOMM_PROCESS_STATE inline std::atomic<device_engine_factory>& device_engines() noexcept {
  static std::atomic<device_engine_factory> factory{nullptr};
  return factory;
}

}  // namespace hfcomm::detail
