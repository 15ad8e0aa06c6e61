// SPDX-License-Identifier: MIT
#pragma once

#include <coroutine>
#include <exception>
#include <functional>
#include <memory>
#include <source_location>
#include <string>
#include <system_error>
#include <utility>

#include <hfcomm/call/announce_failure.hpp>
#include <hfcomm/call/async.hpp>
#include <hfcomm/core/config.hpp>
#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/core/error.hpp>
#include <hfcomm/group/detail/group_state.hpp>
#include <hfcomm/group/detail/identity.hpp>
#include <hfcomm/group/detail/running_call-inl.hpp>
#include <hfcomm/group/detail/work-inl.hpp>

namespace hfcomm::detail {

/// The state of an operation in its group's queue.
class started_state final : public group_work_state {
 public:
  started_state(const operation& call, const process_group& group)
      : group_work_state(call, group),
        shared_(group_access::state(group)),
        rank_(group.rank()),
        size_(group.size()),
        call_(call) {}

  /// Throws usage_error with `text` on the thread that runs an operation of the group. That thread would wait for
  /// itself.
  static void refuse_inside(const group_state& shared, int rank, int size, const operation& call, const char* text) {
    if (group_being_served() == &shared) {
      throw_error<usage_error>({rank, size, call.name.text, 0, call.where}, {text});
    }
  }

  void begin_wait() override {
    refuse_inside(shared_, rank_, size_, call_,
                  "an operation of this group waits, in a callable or an object of it, for one that comes after it");
  }

  /// Runs the operation on this thread, where it is the next of its group.
  void help(bool may_wait) override {
    if (const auto keep = may_wait ? group_unless_done() : std::nullopt) {
      const identity_scope own_rank(own_);
      group_access::state(*keep).queue->run_if_first(this);
    }
  }

 private:
  const group_state& shared_;  // only its address is used
  identity* own_ = thread_identity();
  int rank_;
  int size_;
  operation call_;
};

/// Throws usage_error where nobody may start an operation of the group.
HFCOMM_INLINE void require_startable(const process_group& group, const operation& call) {
  const auto& shared = group_access::state(group);
  started_state::refuse_inside(
      shared, group.rank(), group.size(), call,
      "started inside an asynchronous operation of the same group, where nobody could wait for it");
  if (shared.queue && !shared.queue->in_creating_process()) {
    throw_error<usage_error>(context_of(group, call),
                             {"this group was made before a fork; the child process is not a rank of it"});
  }
}

HFCOMM_INLINE std::shared_ptr<work_state> start_call(operation_name name, const process_group& group,
                                                     std::source_location where,
                                                     std::shared_ptr<started_call> function) {
  operation call{.name = name, .where = where};
  auto& shared = group_access::state(group);
  require_startable(group, call);
  const group_guard entered(group, call);
  if (!shared.queue) {
    // Ranks may be threads; every thread that runs for one of them has its identity.
    const auto made = std::make_shared<work_queue>([own = thread_identity()] { thread_identity() = own; });
    shared.queue = {made.get(), [made](work_queue* queue) { queue->stop(); }};
  }
  auto state = std::make_shared<started_state>(call, group);
  const auto run = [state, &shared, function = std::move(function)]() -> std::function<void()> {
    std::exception_ptr problem;
    {
      const served_group serving(shared);
      try {
        function->run();
      } catch (...) {
        problem = std::current_exception();
      }
    }
    const std::coroutine_handle<> waiter = state->finish(std::move(problem));
    return waiter ? std::function<void()>(waiter) : nullptr;
  };
  try {
    shared.queue->push(run, state.get());
  } catch (const std::system_error& refusal) {
    // The queue's only thread did not start, so no operation is under way.
    const std::string text = concat({"there is no thread to run it: ", refusal.what()});
    const auto context = context_of(group, call);
    try {
      call.timeout = group.timeout();
      group_access::engine(group).announce(call, &text);
    } catch (...) {
      // The group has a more serious error, which its next operation reports.
    }
    throw_error<engine_error>(context, {text});
  }
  return state;
}

/// An operation on the thread that starts it, while its arguments are checked.
class starting_call final : public checked_call {
 public:
  starting_call(const process_group& group, operation& call) : checked_call(group, call) {}

  void announce_failure(const std::string& text) noexcept override {
    const auto tell = [group = group_, call = call_, text] { detail::announce_failure(group, call, text); };
    try {
      start_call(call_.name, group_, call_.where, share_function(tell).call);
    } catch (...) {
      // Without a thread to run it, start_call has told the others.
    }
  }
};

HFCOMM_INLINE void check_before_start(const operation& call, const process_group& group,
                                      function_ref<void(checked_call&)> check) {
  require_startable(group, call);
  operation starting = call;
  starting_call running(group, starting);
  check(running);
}

}  // namespace hfcomm::detail
