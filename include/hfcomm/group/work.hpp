// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <coroutine>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <source_location>
#include <type_traits>
#include <utility>

#include <hfcomm/core/error.hpp>
#include <hfcomm/group/process_group.hpp>

namespace hfcomm {

namespace detail {

/// In place of the value of a work<void>.
struct nothing {};

/// What a `work` and the thread that does it share.
template <class T>
class work_state {
 public:
  using value_type = std::conditional_t<std::is_void_v<T>, nothing, T>;

  /// `help` is called by whoever is about to wait without end: the work must not need that very thread to get done.
  /// Where it does, `help` throws usage_error.
  work_state(const operation& call, process_group group, std::function<void()> help)
      : group_(std::move(group)),
        rank_(group_.rank()),
        size_(group_.size()),
        help_(std::move(help)),
        name_(call.name.text),
        where_(call.where) {}

  /// The end; returns what resumes whoever awaits it.
  [[nodiscard]] std::function<void()> finish(std::optional<value_type> value, std::exception_ptr problem) noexcept {
    std::coroutine_handle<> waiter;
    {
      const std::scoped_lock lock(mutex_);
      try {
        value_ = std::move(value);
        problem_ = std::move(problem);
      } catch (...) {  // the value's move
        problem_ = std::current_exception();
      }
      if (problem_ && dropped_ && !seen_ && !waiter_) {
        defer(group_, std::exchange(problem_, nullptr));
      }
      done_ = true;
      waiter = std::exchange(waiter_, nullptr);
      awaited_ = static_cast<bool>(waiter);
      changed_.notify_all();
    }
    return waiter ? std::function<void()>(waiter) : nullptr;
  }

  [[nodiscard]] bool done() const {
    if (!home_.at_home()) {
      return false;  // nobody is left to finish it, or to unlock the mutex
    }
    const std::scoped_lock lock(mutex_);
    return done_;
  }
  /// False where it is done already, and the coroutine should just go on.
  [[nodiscard]] bool resume_later(std::coroutine_handle<> waiter) {
    require_home();
    const std::scoped_lock lock(mutex_);
    if (waiter_) {
      throw usage_error(context(), "another coroutine awaits this work already");
    }
    if (!done_) {
      waiter_ = waiter;
    }
    return !done_;
  }
  /// A coroutine that is destroyed must not be resumed.
  void forget(std::coroutine_handle<> waiter) noexcept {
    if (home_.at_home()) {
      const std::scoped_lock lock(mutex_);
      waiter_ = waiter_ == waiter ? nullptr : waiter_;
    }
  }

  [[nodiscard]] bool wait_until(const std::chrono::steady_clock::time_point* deadline) {
    require_home();
    if (deadline == nullptr && !done()) {
      help_();
    }
    std::unique_lock lock(mutex_);
    const auto is_done = [this] { return done_; };
    if (deadline == nullptr) {
      changed_.wait(lock, is_done);
      return true;
    }
    return changed_.wait_until(lock, *deadline, is_done);
  }

  T take() {
    const std::scoped_lock lock(mutex_);
    seen_ = true;
    if (problem_) {
      std::rethrow_exception(problem_);
    }
    if constexpr (!std::is_void_v<T>) {
      if (!value_) {
        throw usage_error(context(), "the value of this work has been taken already");
      }
      T value = std::move(*value_);
      value_.reset();
      return value;
    }
  }

  [[nodiscard]] std::exception_ptr problem() {
    if (!home_.at_home()) {
      return nullptr;
    }
    const std::scoped_lock lock(mutex_);
    seen_ = seen_ || problem_ != nullptr;
    return problem_;
  }

  /// An exception is on its way through the caller, who will not do what the other ranks may be waiting for: neither
  /// must they wait for this rank, nor this rank for them, until some deadline.
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

  /// Breaks the group of what is under way: this work's, or where it is a coroutine's that of the work it waits for.
  void abandon() noexcept {
    std::function<void()> abandon_awaited;
    std::optional<process_group> group;
    {
      const std::scoped_lock lock(mutex_);
      if (done_) {
        return;
      }
      abandon_awaited = std::exchange(abandon_awaited_, nullptr);
      group.emplace(group_);
    }
    if (abandon_awaited) {
      abandon_awaited();
    } else {
      group_access::engine(*group).abandon({rank_, size_, name_, 0, where_});
    }
  }
  /// This work is a coroutine's, which waits for another one.
  template <class U>
  void waits_for(const std::shared_ptr<work_state<U>>& other) {
    const std::scoped_lock lock(mutex_);
    abandon_awaited_ = [weak = std::weak_ptr<work_state<U>>(other)] {
      if (const auto awaited = weak.lock()) {
        awaited->abandon();
      }
    };
  }

  /// Nobody will ask any more: waits, and leaves a problem that nobody has seen to the group's next operation.
  void drop() noexcept {
    if (!home_.at_home()) {
      return;
    }
    hurry();
    bool may_wait = true;
    try {
      if (!done()) {
        help_();
      }
    } catch (const usage_error&) {
      may_wait = false;  // this very thread will do the work, later
    } catch (...) {
      // It gets done without help, too.
    }
    // What is left ends here, on the caller's thread and in its time: the other thread may hold on to this object for
    // another moment.
    std::optional<process_group> group;
    std::exception_ptr problem;
    {
      std::unique_lock lock(mutex_);
      if (!done_) {
        dropped_ = true;
        changed_.wait(lock, [&] { return done_ || !may_wait; });
      } else if (problem_ && !seen_) {
        defer(group_, std::exchange(problem_, nullptr));
      }
      if (done_ && !awaited_) {
        value_.reset();
        problem = std::move(problem_);
        group.emplace(std::move(group_));
      }
    }
  }

 private:
  static constexpr std::chrono::seconds hurried_patience{1};

  [[nodiscard]] error_context context() const { return {rank_, size_, "work", 0, where_}; }
  void require_home() const {
    if (!home_.at_home()) {
      throw usage_error(context(), "this work was started before a fork; only the parent process can wait for it");
    }
  }

  process_group group_;  // keeps it until the work is done
  int rank_;
  int size_;
  std::function<void()> help_;
  const char* name_;
  std::source_location where_;
  int exceptions_ = std::uncaught_exceptions();
  rendezvous::fork_guard home_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
  bool seen_ = false;
  bool dropped_ = false;
  bool awaited_ = false;  // by a coroutine, which goes on to take what came
  std::optional<value_type> value_;
  std::exception_ptr problem_;
  std::coroutine_handle<> waiter_;
  std::function<void()> abandon_awaited_;
};

template <class T>
class work_promise;

}  // namespace detail

/// An operation that was started and may still be under way; what it gives, where it gives something. Every buffer that
/// the operation was given must stay, untouched, until it is done; objects were copied.
///
/// The collectives of one group are done one after the other, in the order of the calls; messages when their peer does
/// its part. A blocking collective of the same group waits for those started before it.
///
/// Dropping a work waits for it (each operation has its deadline), and leaves a problem that nobody asked for to the
/// group's next collective, which throws it; where there is none, `launch` and `run_ranks` fail with it, and others
/// print it. Where an exception drops it, it is waited for a second; then the group is broken, with this rank to blame,
/// so that the exception gets on and the other ranks hear of it.
///
/// `co_await`ing a work gives what `wait` gives. The coroutine goes on at once where the work is done, else on the
/// thread that did it; from there it may use the group as from any other thread, wait for other works, and take its
/// time: the group's operations go on on another thread meanwhile. Destroying a coroutine that waits is safe as long as
/// its work cannot be done at that very moment.
///
/// In the child of a fork, works that the parent started are never done: waiting for them is a usage_error.
///
/// Thread-safety: one thread at a time for each work; different works from different threads.
template <class T = void>
class [[nodiscard]] work {
 public:
  using value_type = T;

  explicit work(std::shared_ptr<detail::work_state<T>> state) : state_(std::move(state)) {}
  /// What was moved from may be assigned to or dropped; everything else is a usage_error.
  work(work&& other) noexcept = default;
  /// Drops what it had.
  work& operator=(work&& other) noexcept {
    if (this != &other) {
      drop();
      state_ = std::move(other.state_);
    }
    return *this;
  }
  ~work() { drop(); }

  /// Whether it is done, well or not. Never blocks.
  [[nodiscard]] bool done() const { return shared()->done(); }

  /// Waits until it is done; returns its value, which can be taken once (usage_error after that), or throws what it met
  /// (every time). In a callable that an asynchronous operation of the same group calls, waiting for a later one is a
  /// usage_error.
  T wait() {
    (void)shared()->wait_until(nullptr);
    return state_->take();
  }

  /// Waits until it is done or time is up; whether it is done. The operation goes on either way: its own deadline is
  /// the group's.
  [[nodiscard]] bool wait(std::chrono::steady_clock::time_point deadline) { return shared()->wait_until(&deadline); }
  [[nodiscard]] bool wait(std::chrono::nanoseconds patience) {
    const auto now = std::chrono::steady_clock::now();
    return wait(now + std::min<std::chrono::nanoseconds>(patience, std::chrono::steady_clock::time_point::max() - now));
  }

  /// What it met; null while it is under way and where it went well.
  [[nodiscard]] std::exception_ptr error() const { return shared()->problem(); }

  [[nodiscard]] auto operator co_await() { return awaiter(shared()); }

 private:
  template <class U>
  friend class detail::work_promise;
  using shared_state = std::shared_ptr<detail::work_state<T>>;

  class awaiter {
   public:
    explicit awaiter(shared_state state) : state_(std::move(state)) {}
    awaiter(const awaiter&) = delete;
    awaiter& operator=(const awaiter&) = delete;
    ~awaiter() {
      if (waiter_) {
        state_->forget(waiter_);
      }
    }

    [[nodiscard]] bool await_ready() const { return state_->done(); }
    [[nodiscard]] bool await_suspend(std::coroutine_handle<> waiter) {
      waiter_ = waiter;
      const shared_state keep = state_;  // the coroutine may go on, and end, before this returns
      return keep->resume_later(waiter);
    }
    T await_resume() {
      (void)state_->wait_until(nullptr);
      return state_->take();
    }

   private:
    shared_state state_;
    std::coroutine_handle<> waiter_;
  };

  [[nodiscard]] const shared_state& shared() const {
    if (!state_) {
      throw usage_error({}, "this work was moved from");
    }
    return state_;
  }
  void drop() noexcept {
    if (state_) {
      state_->drop();
      state_.reset();
    }
  }

  shared_state state_;
};

}  // namespace hfcomm
