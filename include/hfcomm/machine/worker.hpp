// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include <hfcomm/core/error.hpp>
#include <hfcomm/machine/fork_guard.hpp>

namespace hfcomm::detail {

/// A thread that waits for work, does it, and waits again until it is stopped. Its owner says what work is.
///
/// One lock protects everything that the owner shares with the thread. Take it with `lock` to change or read that
/// state, and call `wake` after a change that somebody may wait for. Release it around work that may block, or that
/// calls the owner again. A thread body has this form:
///
///     auto held = worker_.lock();
///     while (worker_.wait_for_work(held, [this] { return !jobs_.empty(); })) {
///       // take a job
///       held.unlock();
///       // do it
///       held.lock();
///     }
///
/// In the child of a fork there is no thread, and the lock may be held for ever. There, `stop` and the destructor
/// return at once, and nothing else may be called but `in_creating_process`. Otherwise any thread may call.
class worker {
 public:
  using held_lock = std::unique_lock<std::mutex>;

  worker() = default;
  worker(const worker&) = delete;
  worker& operator=(const worker&) = delete;
  ~worker() {
    stop();
    if (!creator_.in_creating_process()) {
      // Destroying a condition variable waits for its waiters, which are threads of the parent.
      (void)shared_.release();  // NOLINT(*unused-return-value)
    }
  }

  /// Returns false in the child of a fork.
  [[nodiscard]] bool in_creating_process() const noexcept { return creator_.in_creating_process(); }

  [[nodiscard]] held_lock lock() { return held_lock(shared_->mutex); }
  void wake() noexcept { shared_->changed.notify_all(); }

  /// Starts the thread that runs `body()`, unless it has been started. The caller holds the lock, because the thread
  /// may stop itself at once. `body` keeps alive what it uses, or the owner stops the thread first. Throws
  /// engine_error, "no thread could be started for `purpose`", where the system has no thread to give.
  template <class Body>
  void start(const held_lock& /*held*/, const error_context& context, const char* purpose, Body body) {
    if (shared_->thread.joinable()) {
      return;
    }
    try {
      shared_->thread = std::thread(std::move(body));
    } catch (const std::system_error& problem) {
      throw_error<engine_error>(context, {"no thread could be started for ", purpose, ": ", problem.what()});
    }
  }

  /// Waits until `is_ready()` holds. For threads that wait for the worker.
  template <class Ready>
  void wait(held_lock& held, Ready is_ready) {
    shared_->changed.wait(held, is_ready);
  }

  /// Waits until there is work, that is until `has_work()` holds; returns false once the worker is to stop, even where
  /// there is work. For the worker's own threads.
  template <class HasWork>
  [[nodiscard]] bool wait_for_work(held_lock& held, HasWork has_work) {
    shared_->changed.wait(held, [&] { return shared_->is_stopping || has_work(); });
    return !shared_->is_stopping;
  }

  /// Waits until `wake` or for `interval`, whichever comes first; returns false once the worker is to stop. For workers
  /// that look at something again and again.
  [[nodiscard]] bool wait_for_interval(held_lock& held, std::chrono::nanoseconds interval) {
    if (!shared_->is_stopping) {
      shared_->changed.wait_for(held, interval);
    }
    return !shared_->is_stopping;
  }

  /// Makes `wait_for_work` and `wait_for_interval` return false. Does not wait for the threads.
  void request_stop() noexcept {
    if (creator_.in_creating_process()) {
      {
        const auto held = lock();
        shared_->is_stopping = true;
      }
      wake();
    }
  }

  /// Requests the stop and waits until the thread has ended. On that very thread it does not wait: the thread ends when
  /// it comes back from what called. Idempotent. The caller does not hold the lock.
  void stop() noexcept {
    if (!creator_.in_creating_process()) {
      return;
    }
    request_stop();
    std::thread ending;
    {
      const auto held = lock();
      ending = std::move(shared_->thread);
    }
    if (ending.get_id() == std::this_thread::get_id()) {
      ending.detach();
    } else if (ending.joinable()) {
      ending.join();
    }
  }

 private:
  /// State that the destructor leaves alone in the child of a fork.
  struct shared_state {
    std::mutex mutex;
    std::condition_variable changed;
    bool is_stopping = false;
    std::thread thread;
  };

  std::unique_ptr<shared_state> shared_ = std::make_unique<shared_state>();
  rendezvous::fork_guard creator_;
};

}  // namespace hfcomm::detail
