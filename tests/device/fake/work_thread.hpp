// SPDX-License-Identifier: MIT
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include <fake/timeline.hpp>

namespace fake_cuda {

/// A thread that does the work of a stream, one piece after the other.
class work_thread {
 public:
  explicit work_thread(std::function<void(const std::function<void()>&)> guard)
      : guard_(std::move(guard)), thread_([this] { run(); }) {}
  work_thread(const work_thread&) = delete;
  work_thread& operator=(const work_thread&) = delete;
  ~work_thread() { join(); }

  /// Adds work that runs after all earlier work and after these moments. Returns its end.
  moment put(std::function<void()> work, std::vector<moment> after) {
    const std::scoped_lock lock(mutex_);
    const moment end{line_, line_->submit()};
    pieces_.push_back({std::move(work), std::move(after)});
    changed_.notify_all();
    return end;
  }
  /// Returns the end of the last work.
  [[nodiscard]] moment last() const { return {line_, line_->submitted()}; }

  /// Ends the thread once its work is done.
  void finish() {
    const std::scoped_lock lock(mutex_);
    finished_ = true;
    changed_.notify_all();
  }
  /// Returns whether the thread has no more work, so that joining it does not wait.
  [[nodiscard]] bool has_ended() const {
    const std::scoped_lock lock(mutex_);
    return ended_;
  }
  void join() {
    finish();
    if (thread_.joinable()) {
      thread_.join();
    }
  }

 private:
  struct piece {
    std::function<void()> work;
    std::vector<moment> after;
  };

  void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return finished_ || !pieces_.empty(); });
      if (pieces_.empty()) {
        ended_ = true;
        return;
      }
      {
        const piece next = std::move(pieces_.front());
        pieces_.pop_front();
        lock.unlock();
        for (const moment& end : next.after) {
          end.wait();
        }
        if (next.work) {
          guard_(next.work);
        }
      }  // objects that the work owns are destroyed before its end is reported
      line_->complete();
      lock.lock();
    }
  }

  std::function<void(const std::function<void()>&)> guard_;
  std::shared_ptr<timeline> line_ = std::make_shared<timeline>();
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<piece> pieces_;
  bool finished_ = false;
  bool ended_ = false;
  std::thread thread_;  // last: the thread uses all other members
};

}  // namespace fake_cuda
