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
#include <hfcomm/engine/operation.hpp>
#include <hfcomm/group/detail/deferred_errors.hpp>
#include <hfcomm/group/detail/group_state.hpp>
#include <hfcomm/group/work.hpp>
#include <hfcomm/machine/fork_guard.hpp>

namespace hfcomm::detail {

/// The state of a work of one group. Derived classes say when waiting for it would be a deadlock.
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
    return waiter;
  }

  [[nodiscard]] bool done() const override {
    if (!creator_.in_creating_process()) {
      return false;  // nobody is left to finish it, or to unlock the mutex
    }
    const std::scoped_lock lock(mutex_);
    return done_;
  }

  [[nodiscard]] bool resume_later(std::coroutine_handle<> waiter) override {
    require_creating_process();
    const std::scoped_lock lock(mutex_);
    if (waiter_) {
      throw usage_error(context(), "another coroutine awaits this work already");
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
    if (deadline == nullptr && !done()) {
      check_may_wait();
    }
    std::unique_lock lock(mutex_);
    const auto is_done = [this] { return done_; };
    if (deadline == nullptr) {
      changed_.wait(lock, is_done);
      return true;
    }
    return changed_.wait_until(lock, *deadline, is_done);
  }

  void rethrow_problem() override {
    const std::scoped_lock lock(mutex_);
    seen_ = true;
    if (problem_) {
      std::rethrow_exception(problem_);
    }
  }

  [[noreturn]] void refuse_second_take() const override {
    throw usage_error(context(), "the value of this work has been taken already");
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
    const std::scoped_lock lock(mutex_);
    awaited_work_ = other;
    is_coroutine_that_waits_ = true;
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
      waits = std::exchange(is_coroutine_that_waits_, false);
      group.emplace(group_);
    }
    if (!waits) {
      group_access::engine(*group).abandon({rank_, size_, name_, 0, where_});
    } else if (const auto awaited = awaited_work.lock()) {
      awaited->abandon();
    }
  }

  [[nodiscard]] bool drop() noexcept override {
    if (!creator_.in_creating_process()) {
      return false;
    }
    hurry();
    bool may_wait = true;
    try {
      if (!done()) {
        check_may_wait();
      }
    } catch (const usage_error&) {
      may_wait = false;  // this very thread will do the work, later
    } catch (...) {
      // It gets done by others, too.
    }
    // The group and the error end on the caller's thread and in its time, after the lock.
    std::optional<process_group> group;
    std::exception_ptr problem;
    std::unique_lock lock(mutex_);
    if (!done_) {
      dropped_ = true;
      changed_.wait(lock, [&] { return done_ || !may_wait; });
    } else if (problem_ && !seen_) {
      defer(group_, std::exchange(problem_, nullptr));
    }
    const bool nobody_asks = done_ && !awaited_;
    if (nobody_asks) {
      problem = std::move(problem_);
      group.emplace(std::move(group_));
    }
    lock.unlock();
    return nobody_asks;
  }

 protected:
  /// Throws usage_error where waiting on this thread would be a deadlock, because this very thread has to do the work.
  /// May do some of the work.
  virtual void check_may_wait() = 0;

 private:
  static constexpr std::chrono::seconds hurried_patience{1};

  /// Where an exception is on its way through the caller, who will not do what the other ranks may be waiting for:
  /// neither must they wait for this rank, nor this rank for them, until some deadline.
  void hurry() noexcept {
    if (std::uncaught_exceptions() <= exceptions_) {
      return;
    }
    {
      std::unique_lock lock(mutex_);
      if (changed_.wait_for(lock, hurried_patience, [this] { return done_; })) {
        return;
      }
      seen_ = true;  // what comes of it is this rank's own doing
    }
    abandon();
  }

  [[nodiscard]] error_context context() const { return {rank_, size_, "work", 0, where_}; }
  void require_creating_process() const {
    if (!creator_.in_creating_process()) {
      throw usage_error(context(), "this work was started before a fork; only the parent process can wait for it");
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
  bool awaited_ = false;  // by a coroutine, which goes on to take what came
  bool is_coroutine_that_waits_ = false;
  std::weak_ptr<work_state> awaited_work_;
  std::exception_ptr problem_;
  std::coroutine_handle<> waiter_;
};

/// The state of a coroutine, which goes on by itself.
class coroutine_state final : public group_work_state {
 public:
  coroutine_state() : group_work_state(operation{.name = "coroutine"}, process_group()) {}

 protected:
  void check_may_wait() override {}
};

HFCOMM_INLINE std::shared_ptr<work_state> make_coroutine_state() { return std::make_shared<coroutine_state>(); }

HFCOMM_INLINE void refuse_moved_work() { throw usage_error({}, "this work was moved from"); }

}  // namespace hfcomm::detail
