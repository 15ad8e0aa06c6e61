// SPDX-License-Identifier: MIT
#pragma once

#include <coroutine>
#include <exception>
#include <functional>
#include <memory>
#include <type_traits>
#include <utility>

#include <hfcomm/group/work.hpp>

namespace hfcomm::detail {

/// The part of a promise that takes the co_return.
template <class T>
class work_promise_result {
 public:
  template <class U>
  void return_value(U&& value) {
    result_->value.emplace(std::forward<U>(value));
  }

 protected:
  std::shared_ptr<work_value<T>> result_ = std::make_shared<work_value<T>>();
};
template <>
class work_promise_result<void> {
 public:
  void return_void() noexcept { result_->value.emplace(); }

 protected:
  std::shared_ptr<work_value<void>> result_ = std::make_shared<work_value<void>>();
};

/// The promise of a coroutine that returns a work<T>. The coroutine starts at once, on the caller's thread. The work is
/// done when the coroutine has ended and its locals are destroyed.
template <class T>
class work_promise : public work_promise_result<T> {
 public:
  [[nodiscard]] work<T> get_return_object() { return work<T>(state_, this->result_); }
  [[nodiscard]] std::suspend_never initial_suspend() const noexcept { return {}; }
  void unhandled_exception() noexcept { problem_ = std::current_exception(); }

  /// Lets the coroutine await anything. An awaited work is recorded, for an exception that drops the coroutine's own
  /// work.
  template <class Awaited>
  Awaited&& await_transform(Awaited&& awaited) {
    if constexpr (is_work<std::remove_cvref_t<Awaited>>) {
      state_->waits_for(awaited.shared());
    }
    return std::forward<Awaited>(awaited);
  }

  [[nodiscard]] auto final_suspend() noexcept {
    struct final_awaiter {
      [[nodiscard]] bool await_ready() const noexcept { return false; }
      void await_suspend(std::coroutine_handle<work_promise> ended) const noexcept {
        const auto state = std::move(ended.promise().state_);
        auto problem = std::move(ended.promise().problem_);
        ended.destroy();
        if (const auto waiter = state->finish(std::move(problem))) {
          waiter.resume();
        }
      }
      void await_resume() const noexcept {}
    };
    return final_awaiter();
  }

 private:
  std::shared_ptr<work_state> state_ = make_coroutine_state();
  std::exception_ptr problem_;
};

/// Calls `function` with the value of `first`.
template <class Function, class T>
work<typename continuation<Function, T>::type> continue_with(work<T> first, Function function) {
  if constexpr (std::is_void_v<T>) {
    co_await first;
    co_return std::invoke(std::move(function));
  } else {
    T value = co_await first;
    co_return std::invoke(std::move(function), std::move(value));
  }
}

}  // namespace hfcomm::detail

template <class T>
template <class Function>
hfcomm::work<typename hfcomm::detail::continuation<Function, T>::type> hfcomm::work<T>::then(Function function) && {
  (void)shared();  // refuses a work that was moved from
  return detail::continue_with(std::move(*this), std::move(function));
}

/// Any function that returns a `work<T>` may be a coroutine: it can co_await other works and co_return its value.
///
///     hfcomm::work<double> mean_loss(double mine) {
///       const double sum = co_await hfcomm::all_reduce_async(mine);
///       co_return sum / hfcomm::world_size();
///     }
///
/// It starts at once and runs to its first co_await of a work that is not done. Then it continues as described at
/// `work`. Its parameters live as long as the coroutine; objects that they refer to must, too.
template <class T, class... Arguments>
struct std::coroutine_traits<hfcomm::work<T>, Arguments...> {
  using promise_type = hfcomm::detail::work_promise<T>;
};
