// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

#include <hfcomm/core/call_site.hpp>
#include <hfcomm/core/function_ref.hpp>
#include <hfcomm/engine/operation.hpp>
#include <hfcomm/group/detail/checked_call.hpp>
#include <hfcomm/group/process_group.hpp>
#include <hfcomm/group/work.hpp>
#include <hfcomm/group/work_coroutine.hpp>

namespace hfcomm::detail {

/// A function that makes a work's value. It runs once: on the group's worker thread, on the thread that waits for it,
/// or where a message ends.
class started_call {
 public:
  started_call() = default;
  started_call(const started_call&) = delete;
  started_call& operator=(const started_call&) = delete;
  virtual ~started_call() = default;

  /// Runs the function and destroys it. Throws what it throws.
  virtual void run() = 0;
};

template <class Function, class Value>
class started_function final : public started_call, public work_value<Value> {
 public:
  explicit started_function(Function function) : function_(std::move(function)) {}

  void run() override {
    const destroyer last(function_);
    if constexpr (std::is_void_v<Value>) {
      (*function_)();
      this->value.emplace();
    } else {
      this->value.emplace((*function_)());
    }
  }

 private:
  /// Destroys the function and the arguments that it owns, before the work counts as done.
  class destroyer {
   public:
    explicit destroyer(std::optional<Function>& function) : function_(function) {}
    destroyer(const destroyer&) = delete;
    destroyer& operator=(const destroyer&) = delete;
    ~destroyer() { function_.reset(); }

   private:
    std::optional<Function>& function_;
  };

  std::optional<Function> function_;
};

/// A started function, and its value, which lives as long.
template <class Value>
struct shared_function {
  std::shared_ptr<started_call> call;
  std::shared_ptr<work_value<Value>> value;
};

/// Makes a started function. One kind of owner serves all, where make_shared has four functions for each.
template <class Function>
auto share_function(Function function) {
  using value = std::invoke_result_t<Function&>;
  auto made = std::make_unique<started_function<Function, value>>(std::move(function));
  work_value<value>* const result = made.get();
  const std::shared_ptr<started_call> call(std::unique_ptr<started_call>(std::move(made)));
  return shared_function<value>{call, {call, result}};
}

/// Queues `function`, an operation of `group`, behind the operations that were started before it. Returns the state of
/// its work. Throws usage_error, as the operation itself would, where another thread is inside the group. Throws
/// usage_error inside an operation that was started this way.
std::shared_ptr<work_state> start_call(operation_name name, const process_group& group, call_site where,
                                       std::shared_ptr<started_call> function);

/// Calls `check` for an operation that is about to be started. Where it refuses the arguments, the group's thread tells
/// the other ranks in the operation's place.
void check_before_start(const operation& call, const process_group& group, function_ref<void(checked_call&)> check);

/// Starts `collective(owned..., group, where)`, an operation of `group`, and returns a work with its result. The
/// arguments are moved in, and the collective gets them as rvalues.
template <class Collective, class... Owned>
auto start(operation_name name, Collective collective, const process_group& group, call_site where, Owned... owned) {
  auto function = [collective = std::move(collective), group, where, ... owned = std::move(owned)]() mutable {
    return collective(std::move(owned)..., group, where);
  };
  auto shared = share_function(std::move(function));
  auto state = start_call(name, group, where, std::move(shared.call));
  return work<std::invoke_result_t<decltype(function)&>>(std::move(state), std::move(shared.value));
}

/// The same after `check(checked_call&)`, which throws usage_error here where the arguments are bad.
template <class Check, class Collective, class... Owned>
auto start_checked(const operation& call, const Check& check, Collective collective, const process_group& group,
                   Owned&&... owned) {
  check_before_start(call, group, check);
  return start(call.name, collective, group, call.where, std::forward<Owned>(owned)...);
}

/// Starts `run(operation&&, memory..., group)` after `check(checked_call&, memory...)`. `run` and the check get the
/// same arguments, which this keeps; what they point to must stay until the work is done.
template <class Check, class Run, class... Memory>
auto start_on(const operation& call, const Check& check, Run run, const process_group& group, Memory... memory) {
  check_before_start(call, group, [&](checked_call& running) { check(running, memory...); });
  auto collective = [call = operation(call), run = std::move(run), ... memory = std::move(memory)](
                        const process_group& its_group, call_site /*where*/) mutable {
    return run(std::move(call), memory..., its_group);
  };
  return start(call.name, std::move(collective), group, call.where);
}

}  // namespace hfcomm::detail
