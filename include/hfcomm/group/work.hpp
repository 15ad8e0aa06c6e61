// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <coroutine>
#include <exception>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

#include <hfcomm/core/config.hpp>
#include <hfcomm/core/std_algorithm.hpp>

namespace hfcomm {

class process_group;

namespace detail {

/// The value of a work<void>.
struct nothing {};

/// The value of a work; empty until the work is done and after the value was taken.
template <class T>
struct work_value {
  std::optional<std::conditional_t<std::is_void_v<T>, nothing, T>> value;
};

class work_watcher;

/// State that a `work` and the thread that does it share, apart from the value.
class work_state {
 public:
  work_state() = default;
  work_state(const work_state&) = delete;
  work_state& operator=(const work_state&) = delete;
  virtual ~work_state() = default;

  /// Ends the work, whose value is in place where `problem` is null. Returns the coroutine that awaits it, to be
  /// resumed by the caller; null where none does.
  [[nodiscard]] virtual std::coroutine_handle<> finish(std::exception_ptr problem) noexcept = 0;

  [[nodiscard]] virtual bool done() const = 0;
  /// Registers `waiter` to be resumed when the work is done; returns false where it is done already.
  [[nodiscard]] virtual bool resume_later(std::coroutine_handle<> waiter) = 0;
  /// Removes `waiter`, a coroutine that is being destroyed.
  virtual void forget(std::coroutine_handle<> waiter) noexcept = 0;
  /// Waits until the work is done, or the deadline has passed; null is no deadline. Returns whether it is done.
  [[nodiscard]] virtual bool wait_until(const std::chrono::steady_clock::time_point* deadline) = 0;
  /// Does what this thread, which is about to wait for the work, can do of it. Without `may_wait`, it calls the
  /// thread that does it, for this one, which waits for several works or until a deadline.
  virtual void help(bool may_wait) = 0;
  /// Called by a thread before it waits for this work or others, without a deadline. Throws usage_error where that
  /// would be a deadlock, because this very thread has to do the work.
  virtual void begin_wait() = 0;
  /// Registers `watcher`, which is told when the work is done; returns false where it is done already.
  [[nodiscard]] virtual bool watch(work_watcher& watcher) = 0;
  /// Removes `watcher`, if it is registered.
  virtual void unwatch(const work_watcher& watcher) noexcept = 0;
  /// Rethrows the work's error, if it has one; the caller takes the value next.
  virtual void rethrow_problem() = 0;
  [[noreturn]] virtual void refuse_second_take() const = 0;
  [[nodiscard]] virtual std::exception_ptr problem() = 0;

  /// Records that this work is a coroutine's, which waits for `other`.
  virtual void waits_for(const std::shared_ptr<work_state>& other) = 0;
  /// Breaks the group of the operation under way. For a coroutine, that is the operation of the work it waits for.
  virtual void abandon() noexcept = 0;
  /// Waits for a work whose last handle goes, and defers an error that was not thrown to the group's next operation.
  /// Returns whether the caller may destroy the value.
  [[nodiscard]] virtual bool drop() noexcept = 0;
  /// Gives up a work whose last handle goes, without waiting. Defers an error as `drop` does.
  virtual void detach() noexcept = 0;
  /// Withdraws the receive that the work is, or that its coroutine waits for. Returns whether no message had come.
  virtual bool cancel() = 0;
  /// Returns the group whose next collective throws an error that nobody has read.
  [[nodiscard]] virtual process_group deferral_group() const = 0;
};

/// The state of a coroutine that returns a work.
std::shared_ptr<work_state> make_coroutine_state();

[[noreturn]] void refuse_moved_work();

/// Returns the time that far from now, or the last there is.
[[nodiscard]] inline std::chrono::steady_clock::time_point time_after(std::chrono::nanoseconds timeout) {
  const auto now = std::chrono::steady_clock::now();
  return now + std::min<std::chrono::nanoseconds>(timeout, std::chrono::steady_clock::time_point::max() - now);
}

template <class T>
class work_promise;
struct work_access;

/// The value of `function(value)`, or of `function()` for the value of a work<void>.
template <class Function, class T>
struct continuation : std::invoke_result<Function, T> {};
template <class Function>
struct continuation<Function, void> : std::invoke_result<Function> {};

}  // namespace detail

/// An operation that was started and may still be under way, and its value. Every buffer of the operation must stay,
/// untouched, until it is done. Objects were copied.
///
/// The collectives of one group are done one after the other, in the order of the calls. A message is done when its
/// peer does its part. A blocking collective of the same group waits for those started before it.
///
/// Bad arguments are thrown by the function that would start the operation, which returns no work then. Every other
/// error is the work's.
///
/// Dropping a work waits for it, as `wait` does; each operation has its deadline. An error that was not thrown yet is
/// deferred: the group's next collective throws it. Where none comes, `launch` and `run_ranks` fail with it, and other
/// programs print it. Where an exception drops the work, the destructor waits one second. Then it breaks the group,
/// with this rank to blame, so that the exception can continue and the other ranks get an error.
///
/// `co_await` gives the same as `wait`. The coroutine continues at once where the work is done, otherwise on the thread
/// that did it. There it may use the group, wait for other works, and take long: another thread runs the group's next
/// operations meanwhile. A coroutine that waits may be destroyed, unless its work can be done at that very moment.
///
/// In the child of a fork, works that the parent started are never done: waiting for them is a usage_error.
///
/// Thread-safety: one thread at a time for each work; different works from different threads.
template <class T = void>
class [[nodiscard]] work {
 public:
  using value_type = T;

  work(std::shared_ptr<detail::work_state> state, std::shared_ptr<detail::work_value<T>> value)
      : state_(std::move(state)), value_(std::move(value)) {}
  /// A work that was moved from may be assigned to or dropped; everything else is a usage_error.
  work(work&& other) noexcept = default;
  /// Drops the work that it held.
  work& operator=(work&& other) noexcept {
    if (this != &other) {
      drop();
      state_ = std::move(other.state_);
      value_ = std::move(other.value_);
    }
    return *this;
  }
  ~work() { drop(); }

  /// Returns whether it is done, with a value or an error. Never blocks.
  [[nodiscard]] bool done() const { return shared()->done(); }

  /// Waits until it is done; returns its value, or throws its error. This thread may do the operation itself, and run
  /// the coroutines that it continues. The value can be taken once (usage_error after that), the error is thrown every
  /// time. In a callable that an asynchronous operation of the same group calls, waiting for a later one is a
  /// usage_error.
  T wait() {
    (void)shared()->wait_until(nullptr);
    return take(*state_, *value_);
  }

  /// Waits until it is done or the deadline has passed; returns whether it is done. The operation continues either way:
  /// its own deadline is the group's.
  [[nodiscard]] bool wait(std::chrono::steady_clock::time_point deadline) { return shared()->wait_until(&deadline); }
  [[nodiscard]] bool wait(std::chrono::nanoseconds timeout) { return wait(detail::time_after(timeout)); }

  /// The same under the names of std::future.
  T get() { return wait(); }
  template <class Rep, class Period>
  [[nodiscard]] bool wait_for(std::chrono::duration<Rep, Period> timeout) {
    return wait(std::chrono::nanoseconds(timeout));
  }
  [[nodiscard]] bool wait_until(std::chrono::steady_clock::time_point deadline) { return wait(deadline); }

  /// Returns its error; null while it is under way and where it went well.
  [[nodiscard]] std::exception_ptr error() const { return shared()->problem(); }

  [[nodiscard]] auto operator co_await() { return awaiter(shared(), value_); }

  /// Returns a work of `function(value)`, or of `function()` where this is a work<void>. The function is called on the
  /// thread that did this work, or here and at once where it is done. It may use the group, wait for other works, and
  /// take long, as a coroutine that awaits this work may. An error of this work is that of the returned one, and the
  /// function is not called then. The function is destroyed before the returned work is done.
  ///
  ///     irecv<int>(0, group).then([&](int value) { queue.push(value); }).detach();
  ///
  /// Throws usage_error for a work that was moved from, and what copying the function throws.
  template <class Function>
  work<typename detail::continuation<Function, T>::type> then(Function function) &&;

  /// Lets go of the operation, which continues. It keeps its group until it is done; its buffers must stay. Its value
  /// is destroyed, and its error deferred, as if it had been dropped. Where the group ends with it, the error is
  /// printed.
  ///
  /// An operation that no other rank takes part in still breaks the group at its deadline: see `cancel`. Within
  /// `run_ranks`, it has to be done before its rank returns. Throws usage_error for a work that was moved from.
  void detach() {
    shared()->detach();
    value_.reset();
    state_.reset();
  }

  /// Withdraws a receive that was started and that no message has matched. Returns whether it did: then the work is
  /// done with cancelled_error, which is not deferred where nobody reads it, its buffer is free, and the group stays
  /// usable. A message that comes later is for the next receive that wants it. Returns false for every other operation,
  /// and where the receive is matched or done. Of a coroutine, and of `then`, it withdraws the receive that is awaited.
  ///
  /// Never waits. Another thread may be waiting for the work. Throws usage_error for a work that was moved from, and in
  /// the child of a fork. (MPI's `MPI_Cancel`.)
  bool cancel() { return shared()->cancel(); }

 private:
  template <class U>
  friend class detail::work_promise;
  friend struct detail::work_access;
  using shared_state = std::shared_ptr<detail::work_state>;
  using shared_value = std::shared_ptr<detail::work_value<T>>;

  class awaiter {
   public:
    awaiter(shared_state state, shared_value value) : state_(std::move(state)), value_(std::move(value)) {}
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
      return take(*state_, *value_);
    }

   private:
    shared_state state_;
    shared_value value_;
    std::coroutine_handle<> waiter_;
  };

  static T take(detail::work_state& state, [[maybe_unused]] detail::work_value<T>& result) {
    state.rethrow_problem();
    if constexpr (!std::is_void_v<T>) {
      if (!result.value) {
        state.refuse_second_take();
      }
      T value = std::move(*result.value);
      result.value.reset();
      return value;
    }
  }

  [[nodiscard]] const shared_state& shared() const {
    if (!state_) {
      detail::refuse_moved_work();
    }
    return state_;
  }
  void drop() noexcept {
    if (state_) {
      if (state_->drop()) {
        // The value ends here, on the caller's thread: the other thread may keep the shared state a moment longer.
        value_->value.reset();
      }
      value_.reset();
      state_.reset();
    }
  }

  shared_state state_;
  shared_value value_;
};

namespace detail {

template <class T>
inline constexpr bool is_work = false;
template <class T>
inline constexpr bool is_work<work<T>> = true;

/// Access to what a `work` keeps to itself.
struct work_access {
  template <class T>
  [[nodiscard]] static work_state* state(const work<T>& one) {
    return one.shared().get();
  }
};

}  // namespace detail

}  // namespace hfcomm
