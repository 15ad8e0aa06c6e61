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

/// An operation that is put on a device while somebody watches, and where it begins and ends there.
struct device_note {
  device_note(CUevent_st* begins, const operation& what, std::uint64_t its_number)
      : start(begins), call(what), number(its_number) {}

  CUevent_st* start;                      // null: only the call is watched
  std::atomic<CUevent_st*> end{nullptr};  // once the call has returned
  std::atomic<bool> over{false};          // the call has returned, or thrown, with nothing on the device to wait for
  operation call;
  std::uint64_t number;
  /// Since when it is known to be under way: in the call, or then, on the device.
  std::optional<std::chrono::steady_clock::time_point> started = std::chrono::steady_clock::now();
  bool on_device = false;
};

class device_notes {
 public:
  std::shared_ptr<device_note> add(CUevent_st* start, const operation& call, std::uint64_t number) {
    auto note = std::make_shared<device_note>(start, call, number);
    const std::scoped_lock lock(mutex_);
    notes_.push_back(note);
    return note;
  }
  [[nodiscard]] std::list<std::shared_ptr<device_note>> take() {
    const std::scoped_lock lock(mutex_);
    return std::exchange(notes_, {});
  }

 private:
  std::mutex mutex_;
  std::list<std::shared_ptr<device_note>> notes_;
};

}  // namespace hfcomm::detail
