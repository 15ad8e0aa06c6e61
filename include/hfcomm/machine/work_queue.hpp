// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <system_error>
#include <thread>
#include <utility>

#include <hfcomm/machine/worker.hpp>

namespace hfcomm::detail {

/// The asynchronous operations of one group, which run one after the other, in the order of their start, on a thread of
/// their own. A blocking operation of the group first waits until the queue is empty (`drain`). So all of a rank's
/// operations run in the order of its calls.
///
/// A thread that waits for the first operation runs it itself, unless the queue's thread was faster (`run_if_first`).
///
/// A coroutine that waited for an operation continues on the thread that ran it, for as long as it needs. Meanwhile
/// another thread runs the next operations. So the coroutine may wait for them without a deadlock.
///
/// The queue's threads are not joined: a coroutine on one of them may drop the last handle of the group.
class work_queue : public std::enable_shared_from_this<work_queue> {
 public:
  /// Runs one operation and does not throw. Returns its continuation, such as the resumption of a coroutine; null where
  /// it has none.
  using item = std::function<std::function<void()>()>;

  /// `on_start` runs at the beginning of each of the queue's threads.
  explicit work_queue(std::function<void()> on_start) : on_start_(std::move(on_start)) {}
  work_queue(const work_queue&) = delete;
  work_queue& operator=(const work_queue&) = delete;

  /// Adds an operation, which `owner` identifies. Throws std::system_error where the system has no thread to give; then
  /// nothing was added.
  void push(item run, const void* owner = nullptr) {
    {
      const auto held = worker_.lock();
      items_.push_back({std::move(run), owner});
      try {
        start_thread_if_none_is_free();
      } catch (const std::system_error&) {
        if (threads_ == 0) {
          items_.pop_back();
          throw;
        }
        // A busy thread takes the item when it comes back.
      }
    }
    worker_.wake();
  }

  /// Runs the operation of `owner`, and its continuation, on this thread where it is the next one and none is running.
  /// A hand-over between threads costs more than a small operation. Not in the child of a fork.
  void run_if_first(const void* owner) {
    auto held = worker_.lock();
    if (!is_running_ && !items_.empty() && items_.front().owner == owner) {
      run_first_item(held);
    }
  }

  /// Waits until all operations have run. Returns at once in the child of a fork. Not for the thread that runs one.
  void drain() {
    if (worker_.in_creating_process()) {
      auto held = worker_.lock();
      wait_in(held, [this] { return items_.empty() && !is_running_; });
    }
  }

  /// Ends the queue when its group ends. Operations hold their group, so none is left. Does not wait for threads that
  /// run a continuation: one of them may be the caller.
  void stop() noexcept {
    if (worker_.in_creating_process()) {
      worker_.request_stop();
      auto held = worker_.lock();
      wait_in(held, [this] { return free_threads_ == 0 && !is_running_; });
    }
  }

  /// Returns false in the child of a fork, which has no threads of the queue.
  [[nodiscard]] bool in_creating_process() const noexcept { return worker_.in_creating_process(); }

 private:
  struct queued {
    item run;
    const void* owner;
  };

  /// Waits on a thread that is none of the queue's.
  template <class Ready>
  void wait_in(worker::held_lock& held, Ready is_ready) {
    ++waiting_;
    worker_.wait(held, is_ready);
    --waiting_;
  }

  /// Makes sure that a thread runs the first operation.
  void start_thread_if_none_is_free() {
    if (!items_.empty() && !is_running_ && free_threads_ == 0) {
      // The threads share the queue, which outlives its group while they are busy. They end by themselves.
      std::thread([queue = shared_from_this()] {
        queue->on_start_();
        queue->run_items();
      }).detach();
      ++threads_;
      ++free_threads_;
    }
  }

  void run_items() {
    auto held = worker_.lock();
    while (worker_.wait_for_work(held, [this] { return !items_.empty() && !is_running_; })) {
      --free_threads_;
      run_first_item(held);
      ++free_threads_;
    }
    --free_threads_;
    --threads_;
    worker_.wake();
  }

  /// Runs the first operation and its continuation, without the lock. Between the two, other threads may take over.
  void run_first_item(worker::held_lock& held) {
    is_running_ = true;
    item run = std::move(items_.front().run);
    items_.pop_front();
    held.unlock();
    const std::function<void()> continuation = run();
    held.lock();
    is_running_ = false;
    if (continuation) {
      try {
        start_thread_if_none_is_free();
      } catch (const std::system_error&) {
        // The next operation waits until this thread comes back.
      }
    }
    if (!items_.empty() || waiting_ > 0) {
      worker_.wake();
    }
    held.unlock();
    run = nullptr;  // may drop the last handle of the group
    if (continuation) {
      continuation();
    }
    held.lock();
  }

  const std::function<void()> on_start_;
  std::list<queued> items_;
  int waiting_ = 0;  // threads in `drain` and `stop`
  int threads_ = 0;
  int free_threads_ = 0;     // threads that run neither an operation nor a continuation
  bool is_running_ = false;  // an operation
  worker worker_;            // protects all but on_start_
};

}  // namespace hfcomm::detail
