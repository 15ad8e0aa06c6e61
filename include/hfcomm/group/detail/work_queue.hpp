// SPDX-License-Identifier: MIT
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include <hfcomm/machine/fork_guard.hpp>

namespace hfcomm::detail {

/// The asynchronous operations of one group, one after the other, in the order in which they were started, on a thread
/// of their own. A blocking operation of the group first waits until the queue is empty (`drain`): so all of a rank's
/// operations run in the order of its calls.
///
/// What waited for an operation (a coroutine) goes on on the thread that ran it, for as long as it likes; where there
/// is more to run meanwhile, another thread takes over. So nothing that such a coroutine waits for waits for it.
class work_queue : public std::enable_shared_from_this<work_queue> {
 public:
  /// Runs one operation, and must not throw; returns what is to happen after it (the resumption of whoever waits).
  using item = std::function<std::function<void()>()>;

  /// `on_start` runs first on each of the queue's threads.
  explicit work_queue(std::function<void()> on_start) : on_start_(std::move(on_start)) {}
  work_queue(const work_queue&) = delete;
  work_queue& operator=(const work_queue&) = delete;

  /// Throws std::system_error where there is no thread to be had; then the item is not in the queue.
  void push(item run) {
    {
      const std::scoped_lock lock(mutex_);
      items_.push_back(std::move(run));
      try {
        find_server();
      } catch (const std::system_error&) {
        if (threads_ == 0) {
          items_.pop_back();
          throw;
        }
        // One of those that are away will come back to it.
      }
    }
    news_.notify_all();
  }

  /// Waits until all operations have run. Not for the thread that runs one.
  void drain() {
    if (home_.at_home()) {  // in the child of a fork there is nobody to wait for
      std::unique_lock lock(mutex_);
      news_.wait(lock, [this] { return items_.empty() && !running_; });
    }
  }

  /// The group's end. Operations hold their group, so none is left. Does not wait for threads on which something goes
  /// on that waited for an operation: one of them may be the one that calls.
  void stop() noexcept {
    if (home_.at_home()) {
      std::unique_lock lock(mutex_);
      stopping_ = true;
      news_.notify_all();
      news_.wait(lock, [this] { return available_ == 0 && !running_; });
    }
  }

  [[nodiscard]] bool at_home() const noexcept { return home_.at_home(); }

 private:
  /// Sees to it that somebody runs the first operation.
  void find_server() {
    if (!items_.empty() && !running_ && available_ == 0) {
      // The threads share the queue, which outlives its group where they are busy.
      std::thread([queue = shared_from_this()] {
        queue->on_start_();
        queue->serve();
      }).detach();
      ++threads_;
      ++available_;
    }
  }

  void serve() {
    std::unique_lock lock(mutex_);
    while (true) {
      news_.wait(lock, [this] { return stopping_ || (!items_.empty() && !running_); });
      if (stopping_) {
        break;
      }
      --available_;
      running_ = true;
      item run = std::move(items_.front());
      items_.pop_front();
      lock.unlock();
      std::function<void()> then = run();
      lock.lock();
      running_ = false;
      if (then) {
        try {
          find_server();
        } catch (const std::system_error&) {
          // Then what comes next has to wait for this thread.
        }
      }
      news_.notify_all();
      lock.unlock();
      run = nullptr;  // perhaps the last handle of the group
      if (then) {
        then();
      }
      lock.lock();
      ++available_;
    }
    --available_;
    --threads_;
    news_.notify_all();
  }

  const std::function<void()> on_start_;
  std::mutex mutex_;
  std::condition_variable news_;
  std::deque<item> items_;
  int threads_ = 0;
  int available_ = 0;     // threads that neither run an operation nor what comes after one
  bool running_ = false;  // an operation
  bool stopping_ = false;
  rendezvous::fork_guard home_;
};

}  // namespace hfcomm::detail
