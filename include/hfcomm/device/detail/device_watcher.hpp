// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <list>
#include <memory>
#include <optional>
#include <source_location>

#include <hfcomm/device/detail/device_call.hpp>
#include <hfcomm/device/detail/watched_operations.hpp>
#include <hfcomm/group/detail/group_state.hpp>
#include <hfcomm/machine/worker.hpp>

namespace hfcomm::detail {

/// The thread of a device_watch.
class device_watcher {
 public:
  device_watcher(std::chrono::nanoseconds timeout, const process_group& group, std::source_location where)
      : group_(group), timeout_(timeout) {
    connect_device_once(group_, where);
    engine_ = group_access::state(group_).devices;
    const error_context context{group_.rank(), group_.size(), "device_watch", 0, where};
    worker_.start(worker_.lock(), context, "device_watch", [this, device = engine_->current_device()] {
      engine_->use_device(device);
      run();
    });
    watched_operations* nobody = nullptr;
    if (!group_access::state(group_).watched.compare_exchange_strong(nobody, &started_)) {
      throw_error<usage_error>(context, {"this group is watched already"});
    }
  }
  device_watcher(const device_watcher&) = delete;
  device_watcher& operator=(const device_watcher&) = delete;
  ~device_watcher() {
    group_access::state(group_).watched.store(nullptr);
    worker_.stop();
    if (!worker_.in_creating_process()) {
      return;  // the parent's thread may hold the list's lock, and the events are the parent's
    }
    under_way_.splice(under_way_.end(), started_.take());
    for (const auto& watched : under_way_) {
      release_events(*watched);
    }
  }

 private:
  using clock = std::chrono::steady_clock;

  void run() {
    const auto interval = std::clamp<std::chrono::nanoseconds>(timeout_ / 10, std::chrono::milliseconds(1),
                                                               std::chrono::milliseconds(100));
    auto held = worker_.lock();
    while (worker_.wait_for_interval(held, interval)) {
      held.unlock();
      try {
        check();
      } catch (const error& problem) {
        std::fprintf(stderr, "[hfcomm] %s\n", problem.what());
        return;
      }
      held.lock();
    }
  }

  /// Drops the operations that have ended. Throws, having freed the device, where one can never end or takes too long.
  void check() {
    under_way_.splice(under_way_.end(), started_.take());
    std::uint64_t latest = 0;
    for (auto place = under_way_.begin(); place != under_way_.end();) {
      watched_operation& watched = **place;
      auto* const end = watched.end.load();
      if (watched.is_over.load() || (end != nullptr && engine_->is_reached(watched.call, {end}))) {
        release_events(watched);
        place = under_way_.erase(place);
        continue;
      }
      if (end != nullptr && !watched.is_on_device) {
        // The time that it waits behind computation does not count.
        watched.is_on_device = engine_->is_reached(watched.call, {watched.start});
        watched.started = watched.is_on_device ? std::optional(clock::now()) : std::nullopt;
      }
      if (watched.started && timeout_ > std::chrono::nanoseconds::zero() &&
          clock::now() - *watched.started >= timeout_) {
        watched.call.timeout = timeout_;
        engine_->break_for_timeout(watched.call, watched.number);
      }
      latest = std::max(latest, watched.number);
      ++place;
    }
    if (!under_way_.empty()) {
      engine_->check_operation(under_way_.back()->call, latest);
    }
  }

  void release_events(const watched_operation& watched) {
    if (watched.start != nullptr) {
      engine_->release_event(watched.start);
    }
    if (auto* const end = watched.end.load(); end != nullptr) {
      engine_->release_event(end);
    }
  }

  process_group group_;
  std::chrono::nanoseconds timeout_;
  std::shared_ptr<device_engine> engine_;
  watched_operations started_;
  std::list<std::shared_ptr<watched_operation>> under_way_;  // of the worker's thread
  worker worker_;                                            // last: its thread uses all of the above
};

}  // namespace hfcomm::detail
