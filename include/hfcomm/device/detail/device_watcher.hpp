// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <source_location>
#include <thread>

#include <hfcomm/device/detail/device_call.hpp>
#include <hfcomm/device/detail/device_notes.hpp>
#include <hfcomm/group/detail/group_state.hpp>

namespace hfcomm::detail {

/// The thread of a device_watch.
class device_watcher {
 public:
  device_watcher(std::chrono::nanoseconds timeout, const process_group& group, std::source_location where)
      : timeout_(timeout), call_{.name = "device_watch", .where = where} {
    connect_device_once(group, where);
    engine_ = group_access::state(group).devices;
    if (auto* other = engine_->watch(&notes_); other != nullptr) {
      (void)engine_->watch(other);
      throw usage_error({group.rank(), group.size(), call_.name.text, 0, where}, "this group is watched already");
    }
    thread_ = std::thread([this, device = engine_->current_device()] {
      engine_->use_device(device);
      run();
    });
  }
  device_watcher(const device_watcher&) = delete;
  device_watcher& operator=(const device_watcher&) = delete;
  ~device_watcher() {
    (void)engine_->watch(nullptr);
    {
      const std::scoped_lock lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_all();
    thread_.join();
    pending_.splice(pending_.end(), notes_.take());
    for (const auto& note : pending_) {
      forget(*note);
    }
  }

 private:
  using clock = std::chrono::steady_clock;

  void run() {
    std::unique_lock lock(mutex_);
    const auto interval = std::clamp<std::chrono::nanoseconds>(timeout_ / 10, std::chrono::milliseconds(1),
                                                               std::chrono::milliseconds(100));
    while (!wake_.wait_for(lock, interval, [this] { return stopping_; })) {
      try {
        check();
      } catch (const error& problem) {
        std::fprintf(stderr, "[hfcomm] %s\n", problem.what());
        return;
      }
    }
  }

  void check() {
    pending_.splice(pending_.end(), notes_.take());
    std::uint64_t latest = 0;
    for (auto place = pending_.begin(); place != pending_.end();) {
      device_note& note = **place;
      auto* const end = note.end.load();
      if (note.over.load() || (end != nullptr && engine_->done(note.call, {end}))) {
        forget(note);
        place = pending_.erase(place);
        continue;
      }
      if (end != nullptr && !note.on_device) {
        // What it waits for behind computation does not count.
        note.on_device = engine_->done(note.call, {note.start});
        note.started = note.on_device ? std::optional(clock::now()) : std::nullopt;
      }
      if (note.started && timeout_ > std::chrono::nanoseconds::zero() && clock::now() - *note.started >= timeout_) {
        note.call.timeout = timeout_;
        engine_->expire(note.call, note.number);
      }
      latest = std::max(latest, note.number);
      ++place;
    }
    if (!pending_.empty()) {
      engine_->check(pending_.back()->call, latest);
    }
  }

  void forget(const device_note& note) {
    if (note.start != nullptr) {
      engine_->release(note.start);
    }
    if (auto* const end = note.end.load(); end != nullptr) {
      engine_->release(end);
    }
  }

  std::chrono::nanoseconds timeout_;
  operation call_;
  std::shared_ptr<device_engine> engine_;
  device_notes notes_;
  std::list<std::shared_ptr<device_note>> pending_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace hfcomm::detail
