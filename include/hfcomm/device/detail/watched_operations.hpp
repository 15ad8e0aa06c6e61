// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include <hfcomm/core/stream_ref.hpp>
#include <hfcomm/engine/operation.hpp>

namespace hfcomm::detail {

/// An operation that a device_watch watches, with the events before and after it on its stream.
struct watched_operation {
  watched_operation(CUevent_st* start_event, const operation& what, std::uint64_t its_number)
      : start(start_event), call(what), number(its_number) {}

  CUevent_st* start;                      // null: only the call on the host is watched
  std::atomic<CUevent_st*> end{nullptr};  // set once the call has returned
  std::atomic<bool> is_over{false};       // the call has ended, and there is nothing on the device to wait for
  operation call;
  std::uint64_t number;
  /// Time since when the operation is known to run: first its call, then its work on the device.
  std::optional<std::chrono::steady_clock::time_point> started = std::chrono::steady_clock::now();
  bool is_on_device = false;  // its work on the device has begun
};

/// The operations that were started since the device_watch took the list last. Any thread may call.
class watched_operations {
 public:
  std::shared_ptr<watched_operation> add(CUevent_st* start, const operation& call, std::uint64_t number) {
    auto added = std::make_shared<watched_operation>(start, call, number);
    const std::scoped_lock lock(mutex_);
    operations_.push_back(added);
    return added;
  }
  /// Returns the list, and leaves an empty one.
  [[nodiscard]] std::list<std::shared_ptr<watched_operation>> take() {
    const std::scoped_lock lock(mutex_);
    return std::exchange(operations_, {});
  }

 private:
  std::mutex mutex_;
  std::list<std::shared_ptr<watched_operation>> operations_;
};

}  // namespace hfcomm::detail
