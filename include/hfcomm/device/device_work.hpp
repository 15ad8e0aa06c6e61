// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>

#include <hfcomm/core/stream_ref.hpp>
#include <hfcomm/engine/device_engine.hpp>

namespace hfcomm {

/// A device operation that was started on a stream of the group's own and may still run. Its buffers must stay, and no
/// other stream may use them, until a stream or the host has waited for the operation.
///
/// The destructor does not block. If neither a stream nor the host has waited for the operation, it makes the stream
/// from which the operation was started wait for it. So that stream must still exist then.
///
/// Thread-safety: one thread at a time for each work; different works from different threads.
class [[nodiscard]] device_work {
 public:
  device_work(std::shared_ptr<engines::device_engine> engine, engines::device_engine::event_handle event,
              stream_ref origin, const engines::operation& call, std::uint64_t number) noexcept;
  /// A work that was moved from may be assigned to or destroyed. Every other use throws usage_error.
  device_work(device_work&& other) noexcept;
  /// Destroys the work that it held.
  device_work& operator=(device_work&& other) noexcept;
  ~device_work();

  /// Makes the following work on `stream` wait until the operation is done. Never blocks the host. (torch's
  /// `Work::wait`, which takes the current stream.)
  void wait(stream_ref stream);

  /// Returns whether the operation is done. Never blocks.
  [[nodiscard]] bool done() const;

  /// Waits on the host until the operation is done. Throws peer_error where a rank died, left, or refused its part, and
  /// timeout_error where the group's deadline passes, counted from the call. Both free the device and break the group.
  void synchronize();
  /// Waits for at most `limit`, and returns whether the operation is done; zero or less only asks. Throws as above, and
  /// also where the group's deadline passes before `limit`. The operation continues where this returns false.
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
  bool has_waited_ = false;  // a stream or the host
};

}  // namespace hfcomm
