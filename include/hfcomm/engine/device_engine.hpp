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

#include <hfcomm/core/stream_ref.hpp>
#include <hfcomm/engine/host_engine.hpp>
#include <hfcomm/engine/operation.hpp>

namespace hfcomm::engines {

/// A part of a device operation that goes to, or comes from, one rank.
struct device_part {
  int rank;
  std::byte* data;  ///< Only read where it is sent.
  std::size_t bytes;
};

/// Where an operation's device memory is. Only the address is looked at, for the device that it belongs to.
struct device_memory {
  const void* data = nullptr;
  std::size_t bytes = 0;
};

/// Carries device memory between the ranks of one group: the counterpart of host_engine, which it has beside it for
/// whatever the ranks have to agree on. Everything is put on a stream and returns at once; nothing here waits for a
/// device, but `await`.
///
/// `begin` comes before each operation, and then either the operation or `refuse`. Buffers have been checked for their
/// lengths, not for where they are. One thread at a time; the process group sees to that; but `await`, `done`, `order`,
/// `release` and `abort` any thread.
class device_engine {
 public:
  /// A mark on a stream, which an asynchronous operation ends with.
  using event = CUevent_st*;

  device_engine() = default;
  device_engine(const device_engine&) = delete;
  device_engine& operator=(const device_engine&) = delete;
  virtual ~device_engine() = default;

  [[nodiscard]] virtual std::string_view name() const noexcept = 0;
  /// The number of the collective that was begun last, from 1. Messages are not counted: not all ranks see them.
  [[nodiscard]] virtual std::uint64_t sequence() const noexcept = 0;

  /// Gets ready for operations on the current device. Collective over the host plane.
  virtual void connect(const operation& call) = 0;

  /// The engine of a new group of some of these ranks, connected as this one is, `host` being its host plane; null on a
  /// rank that is in none (`host` is null there). The ranks of one new group give the same `color`. Collective over the
  /// host plane of this group.
  virtual std::shared_ptr<device_engine> subgroup(const operation& call, std::shared_ptr<host_engine> host,
                                                  int color) = 0;

  /// Throws what has broken the group, if anything has. Returns the operation's number; 0 for a message.
  virtual std::uint64_t begin(const operation& call) = 0;
  /// This rank does not do its part: the others' devices would wait for it in vain.
  virtual void refuse(std::uint64_t number, std::string_view why) noexcept = 0;

  /// To every rank (movement::to_all) or to the root.
  virtual void reduce(const operation& call, const void* in, void* out, std::size_t count, stream_ref stream) = 0;
  /// `count` elements to each rank, one part behind the other in `in`.
  virtual void reduce_scatter(const operation& call, const void* in, void* out, std::size_t count,
                              stream_ref stream) = 0;
  /// `counts` has the elements of each rank's part.
  virtual void reduce_scatter(const operation& call, const void* in, void* out, std::span<const std::size_t> counts,
                              stream_ref stream) = 0;
  virtual void broadcast(const operation& call, const void* in, void* out, std::size_t bytes, stream_ref stream) = 0;
  virtual void all_gather(const operation& call, const void* in, void* out, std::size_t bytes, stream_ref stream) = 0;
  /// Parts of different lengths: `counts` has the bytes of each rank's.
  virtual void all_gather(const operation& call, const void* in, void* out, std::span<const std::size_t> counts,
                          stream_ref stream) = 0;
  /// All of them at once. A part for this rank itself has one from itself beside it.
  virtual void pass(const operation& call, std::span<const device_part> outgoing, std::span<const device_part> incoming,
                    stream_ref stream) = 0;
  /// What follows on the stream begins when all ranks' streams have come here.
  virtual void meet(const operation& call, stream_ref stream) = 0;

  /// Memory of the current device. Giving it back waits for the device. It may outlive the engine.
  virtual std::shared_ptr<std::byte> allocate(const operation& call, std::size_t bytes) = 0;
  /// The same, which NCCL is told of where it can make use of that. The same size everywhere. Collective over the host
  /// plane.
  virtual std::shared_ptr<std::byte> allocate_registered(const operation& call, std::size_t bytes) = 0;
  /// Within a device. Throws usage_error, and the others hear of it, for memory that is not there.
  virtual void copy(const operation& call, const void* in, void* out, std::size_t bytes, stream_ref stream) = 0;
  /// Sets all bits to 0.
  virtual void clear(const operation& call, void* out, std::size_t bytes, stream_ref stream) = 0;

  /// From here on operations may be held back, and are on their streams once `end_batch` has returned.
  virtual void begin_batch(const operation& call) = 0;
  virtual void end_batch(const operation& call) = 0;
  /// Whether this thread has begun one, of this engine or another of its kind: what it calls may be held back.
  [[nodiscard]] virtual bool in_batch() const noexcept = 0;

  /// This engine's own stream of the device that the memory is on, behind what is on `stream` by now.
  virtual stream_ref fork(const operation& call, device_memory memory, stream_ref stream) = 0;
  /// A mark behind what is on the stream by now; to be given back with `release`.
  virtual event mark(const operation& call, device_memory memory, stream_ref stream) = 0;
  virtual void release(event mark) noexcept = 0;
  /// What follows on the stream begins when the mark has been reached.
  virtual void order(const operation& call, event mark, stream_ref stream) = 0;

  /// Whether what is put on the stream becomes part of a graph instead of being done.
  virtual bool capturing(const operation& call, stream_ref stream) = 0;

  /// CUDA's current device of this thread.
  [[nodiscard]] virtual int current_device() const = 0;
  /// Makes it the current one: a thread that has none would make itself at home on device 0.
  virtual void use_device(int device) const noexcept = 0;

  /// What to wait for: a mark, or where that is null, all that is on the stream.
  struct target {
    event mark = nullptr;
    stream_ref stream = stream_ref::legacy_default();
  };
  /// Whether it has been reached. Throws what CUDA says.
  virtual bool done(const operation& call, target what) = 0;
  /// Blocks until it has been reached, and returns true; or false where `patience` has passed; zero or less: the
  /// operation's deadline, after which the group is lost. `number` is the operation that is waited for. Throws
  /// peer_error, timeout_error or engine_error where that will not end; then the group is lost, and no kernel of this
  /// engine waits on the device any more.
  virtual bool await(const operation& call, std::uint64_t number, target what, std::chrono::nanoseconds patience) = 0;

  /// While something is waited for: throws where that will never end, having freed the device.
  virtual void check(const operation& call, std::uint64_t number) = 0;
  /// The deadline of what is waited for has passed: frees the device, breaks the group, throws timeout_error.
  [[noreturn]] virtual void expire(const operation& call, std::uint64_t number) = 0;

  /// Frees whatever waits on a device for other ranks. Never blocks for long; the group is lost.
  virtual void abort() noexcept = 0;
};

}  // namespace hfcomm::engines

namespace hfcomm::detail {

using engines::device_engine;
using engines::device_memory;
using engines::device_part;

/// How a group gets its device engine. Set by <hfcomm/nccl.hpp>, which alone knows of CUDA; null in a program that was
/// compiled without.
using device_engine_factory = std::shared_ptr<device_engine> (*)(const std::shared_ptr<host_engine>& host,
                                                                 const operation& call);
inline std::atomic<device_engine_factory>& device_engines() noexcept {
  static std::atomic<device_engine_factory> factory{nullptr};
  return factory;
}

}  // namespace hfcomm::detail
