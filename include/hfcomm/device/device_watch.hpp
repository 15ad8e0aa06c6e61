// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <list>
#include <memory>
#include <mutex>
#include <source_location>
#include <thread>
#include <utility>

#include <hfcomm/call/device_call.hpp>

namespace hfcomm {

/// Watches a group's device operations from a thread, while it lives: for programs that wait for a stream by other
/// means than hfcomm's, cudaStreamSynchronize for instance, which would wait for ever for a rank that is gone.
///
/// Where an operation has not ended `timeout` after it began on its device (the time that it waits behind computation
/// does not count), or a rank is lost that it waits for, the device is freed, the group is broken with an error that
/// names the culprit, and a line says so on stderr. What was waited for then returns, with nothing of use in the
/// buffers; the group's next operation throws. Operations in graphs are not watched, and of those in an
/// nccl_group_scope only the call that puts them on the streams, except for lost ranks while others are under way.
///
/// One for each group, and not made or destroyed while another thread is inside an operation of the group. Costs two
/// marks on the stream for each operation.
class device_watch {
 public:
  /// Connects the group if it is not (see connect_device). Throws usage_error where the group is watched already.
  explicit device_watch(const process_group& group = world(),
                        std::source_location where = std::source_location::current())
      : device_watch(group.timeout(), group, where) {}
  explicit device_watch(std::chrono::nanoseconds timeout, const process_group& group = world(),
                        std::source_location where = std::source_location::current())
      : timeout_(timeout), call_{.name = "device_watch", .where = where} {
    detail::connect_device_once(group, where);
    engine_ = detail::group_access::state(group).devices;
    if (auto* other = engine_->watch(&notes_); other != nullptr) {
      (void)engine_->watch(other);
      throw usage_error({group.rank(), group.size(), call_.name.text, 0, where}, "this group is watched already");
    }
    thread_ = std::thread([this, device = engine_->current_device()] {
      engine_->use_device(device);
      run();
    });
  }
  device_watch(const device_watch&) = delete;
  device_watch& operator=(const device_watch&) = delete;
  ~device_watch() {
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
        look();
      } catch (const error& problem) {
        std::fprintf(stderr, "[hfcomm] %s\n", problem.what());
        return;
      }
    }
  }

  void look() {
    pending_.splice(pending_.end(), notes_.take());
    std::uint64_t latest = 0;
    for (auto place = pending_.begin(); place != pending_.end();) {
      detail::device_note& note = **place;
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

  void forget(const detail::device_note& note) {
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
  detail::device_notes notes_;
  std::list<std::shared_ptr<detail::device_note>> pending_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace hfcomm
