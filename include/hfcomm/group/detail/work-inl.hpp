// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <condition_variable>
#include <coroutine>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <source_location>
#include <utility>

#include <hfcomm/core/config.hpp>
#include <hfcomm/core/error.hpp>
#include <hfcomm/engine/group_health.hpp>
#include <hfcomm/engine/operation.hpp>
#include <hfcomm/group/detail/deferred_errors.hpp>
#include <hfcomm/group/detail/group_state.hpp>
#include <hfcomm/group/work.hpp>
#include <hfcomm/machine/fork_guard.hpp>

namespace hfcomm::detail {

/// A thread that waits for the first of several works.
class work_watcher {
 public:
  void notify() noexcept {
    const std::scoped_lock lock(mutex_);
    is_notified_ = true;
    changed_.notify_all();
  }

  /// Waits until a work has notified it, or the deadline has passed; null is no deadline.
  void wait_until(const std::chrono::steady_clock::time_point* deadline) {
    std::unique_lock lock(mutex_);
    const auto is_notified = [this] { return is_notified_; };
    if (deadline == nullptr) {
      changed_.wait(lock, is_notified);
    } else {
      (void)changed_.wait_until(lock, *deadline, is_notified);
    }
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_notified_ = false;
};

/// The state of a work of one group. Derived classes decide when waiting for it would be a deadlock.
class group_work_state : public work_state {
 public:
  group_work_state(const operation& call, process_group group)
      : group_(std::move(group)),
        rank_(group_.rank()),
        size_(group_.size()),
        name_(call.name.text),
        where_(call.where) {}

  [[nodiscard]] std::coroutine_handle<> finish(std::exception_ptr problem) noexcept override {
    const std::scoped_lock lock(mutex_);
    problem_ = std::move(problem);
    if (problem_ && dropped_ && !seen_ && !waiter_) {
      defer(group_, std::exchange(problem_, nullptr));
    }
    done_ = true;
    const std::coroutine_handle<> waiter = std::exchange(waiter_, nullptr);
    awaited_ = static_cast<bool>(waiter);
    changed_.notify_all();
    if (watcher_ != nullptr) {
      watcher_->notify();
    }
    return waiter;
  }

  [[nodiscard]] bool done() const override {
    if (!creator_.in_creating_process()) {
      return false;  // the child of a fork has no thread to finish it or to unlock the mutex
    }
    const std::scoped_lock lock(mutex_);
    return done_;
  }

  [[nodiscard]] bool resume_later(std::coroutine_handle<> waiter) override {
    require_creating_process();
    const std::scoped_lock lock(mutex_);
    if (waiter_) {
      throw_error<usage_error>(context(), {"another coroutine awaits this work already"});
    }
    if (!done_) {
      waiter_ = waiter;
    }
    return !done_;
  }

  void forget(std::coroutine_handle<> waiter) noexcept override {
    if (creator_.in_creating_process()) {
      const std::scoped_lock lock(mutex_);
      waiter_ = waiter_ == waiter ? nullptr : waiter_;
    }
  }

  [[nodiscard]] bool wait_until(const std::chrono::steady_clock::time_point* deadline) override {
    require_creating_process();
    if (!done()) {
      if (deadline == nullptr) {
        begin_wait();
      }
      help(deadline == nullptr);
    }
    std::unique_lock lock(mutex_);
    const auto is_done = [this] { return done_; };
    if (deadline == nullptr) {
      changed_.wait(lock, is_done);
      return true;
    }
    return changed_.wait_until(lock, *deadline, is_done);
  }

  void begin_wait() override {}
  void help(bool /*may_wait*/) override {}

  [[nodiscard]] bool watch(work_watcher& watcher) override {
    require_creating_process();
    const std::scoped_lock lock(mutex_);
    if (watcher_ != nullptr && watcher_ != &watcher) {
      throw_error<usage_error>(context(), {"another thread waits for this work already"});
    }
    watcher_ = done_ ? nullptr : &watcher;
    return !done_;
  }

  void unwatch(const work_watcher& watcher) noexcept override {
    const std::scoped_lock lock(mutex_);
    watcher_ = watcher_ == &watcher ? nullptr : watcher_;
  }

  void rethrow_problem() override {
    const std::scoped_lock lock(mutex_);
    seen_ = true;
    if (problem_) {
      std::rethrow_exception(problem_);
    }
  }

  [[noreturn]] void refuse_second_take() const override {
    throw_error<usage_error>(context(), {"the value of this work has been taken already"});
  }

  [[nodiscard]] std::exception_ptr problem() override {
    if (!creator_.in_creating_process()) {
      return nullptr;
    }
    const std::scoped_lock lock(mutex_);
    seen_ = seen_ || problem_ != nullptr;
    return problem_;
  }

  void waits_for(const std::shared_ptr<work_state>& other) override {
    process_group theirs = other->deferral_group();  // before the lock: a coroutine may await another one
    const std::scoped_lock lock(mutex_);
    awaited_work_ = other;
    is_coroutine_ = true;
    std::swap(group_, theirs);
  }

  [[nodiscard]] process_group deferral_group() const override {
    const std::scoped_lock lock(mutex_);
    return group_;
  }

  bool cancel() override {
    require_creating_process();
    const auto awaited = awaited_work();
    const bool is_cancelled = awaited ? awaited->cancel() : withdraw();
    if (is_cancelled) {
      const std::scoped_lock lock(mutex_);
      seen_ = true;
    }
    return is_cancelled;
  }

  void abandon() noexcept override {
    std::weak_ptr<work_state> awaited_work;
    std::optional<process_group> group;
    bool waits = false;
    {
      const std::scoped_lock lock(mutex_);
      if (done_) {
        return;
      }
      awaited_work = std::exchange(awaited_work_, {});
      waits = is_coroutine_;
      group.emplace(group_);
    }
    if (!waits) {
      group_access::engine(*group).health().abandon({rank_, size_, name_, 0, where_});
    } else if (const auto awaited = awaited_work.lock()) {
      awaited->abandon();
    }
  }

  [[nodiscard]] bool drop() noexcept override {
    if (!creator_.in_creating_process()) {
      return false;
    }
    abandon_if_unwinding();
    bool may_wait = true;
    try {
      if (!done()) {
        begin_wait();
        help(true);
      }
    } catch (const usage_error&) {
      may_wait = false;  // this very thread will do the work later
    } catch (...) {
      // Other threads can do it, too.
    }
    // The group and the error are destroyed on the caller's thread, after the lock is released.
    std::optional<process_group> group;
    std::exception_ptr problem;
    std::unique_lock lock(mutex_);
    if (!done_) {
      dropped_ = true;
      changed_.wait(lock, [&] { return done_ || !may_wait; });
    } else if (problem_ && !seen_) {
      defer(group_, std::exchange(problem_, nullptr));
    }
    const bool is_unused = done_ && !awaited_;
    if (is_unused) {
      problem = std::move(problem_);
      group.emplace(std::move(group_));
    }
    lock.unlock();
    return is_unused;
  }

  void detach() noexcept override {
    if (!creator_.in_creating_process()) {
      return;
    }
    const std::scoped_lock lock(mutex_);
    dropped_ = true;
    if (done_ && problem_ && !seen_) {
      defer(group_, std::exchange(problem_, nullptr));
    }
  }

 protected:
  /// Withdraws the operation where it is a receive that no message has matched; returns whether it did.
  [[nodiscard]] virtual bool withdraw() { return false; }

  /// Returns the group while the work is under way.
  [[nodiscard]] std::optional<process_group> group_unless_done() const {
    const std::scoped_lock lock(mutex_);
    return done_ ? std::nullopt : std::optional(group_);
  }

  /// Returns the work that this one, a coroutine's, waits for; null where there is none.
  [[nodiscard]] std::shared_ptr<work_state> awaited_work() const {
    const std::scoped_lock lock(mutex_);
    return done_ ? nullptr : awaited_work_.lock();
  }

 private:
  static constexpr std::chrono::seconds unwinding_limit{1};

  /// Breaks the group where an exception unwinds the caller and the work does not end soon. The caller will not do what
  /// the other ranks may wait for, so neither side must wait until a deadline.
  void abandon_if_unwinding() noexcept {
    if (std::uncaught_exceptions() <= exceptions_) {
      return;
    }
    {
      std::unique_lock lock(mutex_);
      if (changed_.wait_for(lock, unwinding_limit, [this] { return done_; })) {
        return;
      }
      seen_ = true;  // the error will be this rank's own doing
    }
    abandon();
  }

  [[nodiscard]] error_context context() const { return {rank_, size_, "work", 0, where_}; }
  void require_creating_process() const {
    if (!creator_.in_creating_process()) {
      throw_error<usage_error>(context(),
                               {"this work was started before a fork; only the parent process can wait for it"});
    }
  }

  process_group group_;  // keeps it until the work is done
  int rank_;
  int size_;
  const char* name_;
  std::source_location where_;
  int exceptions_ = std::uncaught_exceptions();
  rendezvous::fork_guard creator_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
  bool seen_ = false;
  bool dropped_ = false;
  bool awaited_ = false;       // by a coroutine, which takes the value
  bool is_coroutine_ = false;  // one that has awaited a work
  std::weak_ptr<work_state> awaited_work_;
  std::exception_ptr problem_;
  std::coroutine_handle<> waiter_;
  work_watcher* watcher_ = nullptr;
};

/// The state of a coroutine, which needs no thread to continue it.
class coroutine_state final : public group_work_state {
 public:
  coroutine_state() : group_work_state(operation{.name = "coroutine"}, process_group()) {}

  void begin_wait() override {
    if (const auto awaited = awaited_work(); awaited && !awaited->done()) {
      awaited->begin_wait();
    }
  }
  /// Helps with the work that the coroutine waits for, and with the next one, if it has come to that by then.
  void help(bool may_wait) override {
    std::shared_ptr<work_state> helped;
    for (auto next = awaited_work(); next != nullptr && next != helped; next = awaited_work()) {
      next->help(may_wait);
      helped = std::move(next);
    }
  }
};

HFCOMM_INLINE std::shared_ptr<work_state> make_coroutine_state() { return std::make_shared<coroutine_state>(); }

HFCOMM_INLINE void refuse_moved_work() { throw_error<usage_error>({"this work was moved from"}); }

}  // namespace hfcomm::detail
