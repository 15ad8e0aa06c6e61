// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>

#include <hfcomm/core/stream_ref.hpp>
#include <hfcomm/engine/device_engine.hpp>

namespace hfcomm {

/// A device operation that was started, on a stream of the group's own, and may still be under way. Its buffers must
/// stay, untouched by other streams, until a stream has been ordered behind it, or the host has waited.
///
/// Dropping a work that nobody waited for orders the stream that the operation was started from behind it, so that
/// stream must still exist then. Nothing blocks.
///
/// Thread-safety: one thread at a time for each work; different works from different threads.
class [[nodiscard]] device_work {
 public:
  device_work(std::shared_ptr<engines::device_engine> engine, engines::device_engine::event_handle event,
              stream_ref origin, const engines::operation& call, std::uint64_t number) noexcept;
  /// What was moved from may be assigned to or dropped; everything else is a usage_error.
  device_work(device_work&& other) noexcept;
  /// Drops what it had.
  device_work& operator=(device_work&& other) noexcept;
  ~device_work();

  /// What is put on `stream` from here on begins when the operation is done. Never blocks the host. (torch's
  /// `Work::wait`, which takes the current stream.)
  void wait(stream_ref stream);

  /// Returns whether it is done. Never blocks.
  [[nodiscard]] bool done() const;

  /// Blocks the host until it is done. Throws peer_error where a rank died, left, or refused its part, and
  /// timeout_error where the group's deadline, counted from here, passes; both free the device and break the group.
  void synchronize();
  /// Gives up waiting when `limit` is over, and returns whether it is done. It goes on either way.
  [[nodiscard]] bool synchronize(std::chrono::nanoseconds limit);

 private:
  /// Throws usage_error where this was moved from.
  [[nodiscard]] engines::device_engine& engine() const;
  void drop() noexcept;

  std::shared_ptr<engines::device_engine> engine_;
  engines::device_engine::event_handle event_;
  stream_ref origin_;
  engines::operation call_;
  std::uint64_t number_;
  bool waited_ = false;
};

}  // namespace hfcomm
