// SPDX-License-Identifier: MIT
#pragma once

#include <coroutine>
#include <exception>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

#include <hfcomm/group/work.hpp>

namespace hfcomm::detail {

template <class T>
inline constexpr bool is_work = false;
template <class T>
inline constexpr bool is_work<work<T>> = true;

/// What a coroutine that returns a work<T> gives: the value of its co_return, or its exception.
template <class T>
class work_promise_result {
 public:
  template <class U>
  void return_value(U&& value) {
    value_.emplace(std::forward<U>(value));
  }

 protected:
  std::optional<T> value_;
};
template <>
class work_promise_result<void> {
 public:
  void return_void() noexcept { value_.emplace(); }

 protected:
  std::optional<nothing> value_;
};

/// A coroutine that returns a work<T> starts at once, on the caller's thread; the work is done when it has ended and
/// its locals are gone.
template <class T>
class work_promise : public work_promise_result<T> {
 public:
  [[nodiscard]] work<T> get_return_object() { return work<T>(state_); }
  [[nodiscard]] std::suspend_never initial_suspend() const noexcept { return {}; }
  void unhandled_exception() noexcept { problem_ = std::current_exception(); }

  /// Anything can be awaited. Of a work it is noted, for where an exception drops the coroutine's own.
  template <class Awaited>
  Awaited&& await_transform(Awaited&& awaited) {
    if constexpr (is_work<std::remove_cvref_t<Awaited>>) {
      state_->waits_for(awaited.shared());
    }
    return std::forward<Awaited>(awaited);
  }

  [[nodiscard]] auto final_suspend() noexcept {
    struct ending {
      [[nodiscard]] bool await_ready() const noexcept { return false; }
      void await_suspend(std::coroutine_handle<work_promise> ended) const noexcept {
        const auto state = std::move(ended.promise().state_);
        auto value = std::move(ended.promise().value_);
        auto problem = std::move(ended.promise().problem_);
        ended.destroy();
        if (const auto then = state->finish(std::move(value), std::move(problem))) {
          then();
        }
      }
      void await_resume() const noexcept {}
    };
    return ending();
  }

 private:
  std::shared_ptr<work_state<T>> state_ =
      std::make_shared<work_state<T>>(operation{.name = "coroutine"}, process_group(), [] {});
  std::exception_ptr problem_;
};

}  // namespace hfcomm::detail

/// Any function that returns a `work<T>` may be a coroutine: it can co_await other works and co_return its value.
///
///     hfcomm::work<double> mean_loss(double mine) {
///       const double sum = co_await hfcomm::all_reduce_async(mine);
///       co_return sum / hfcomm::world_size();
///     }
///
/// It starts at once and runs up to its first co_await of something that is not done; from there it goes on as `work`
/// says. Its parameters live as long as it does; what they refer to must, too.
template <class T, class... Arguments>
struct std::coroutine_traits<hfcomm::work<T>, Arguments...> {
  using promise_type = hfcomm::detail::work_promise<T>;
};
