// SPDX-License-Identifier: MIT
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <source_location>
#include <string>
#include <system_error>
#include <type_traits>
#include <utility>

#include <hfcomm/call/call.hpp>
#include <hfcomm/group/work.hpp>

namespace hfcomm::detail {

/// Runs `function()`, an operation of `group`, behind those that were started before it. Throws usage_error, as the
/// operation itself would, where another thread is inside the group; and inside an operation that was started so.
template <class Function>
work<std::invoke_result_t<Function&>> start(operation_name name, const process_group& group, std::source_location where,
                                            Function function) {
  using value = std::invoke_result_t<Function&>;
  using state_type = work_state<value>;
  operation call{.name = name, .where = where};
  auto& shared = group_access::state(group);
  const auto refuse_inside = [&shared, group_rank = group.rank(), group_size = group.size(), call](const char* what) {
    if (group_being_served() == &shared) {
      throw usage_error({group_rank, group_size, call.name.text, 0, call.where}, what);
    }
  };
  refuse_inside("started inside an asynchronous operation of the same group, where nobody could wait for it");
  const group_guard entered(group, call);
  if (!shared.queue) {
    // Ranks may be threads; what runs for one of them is that rank.
    shared.queue = std::make_shared<work_queue>([own = thread_identity()] { thread_identity() = own; });
  } else if (!shared.queue->at_home()) {
    throw usage_error(context_of(group, call),
                      "this group was made before a fork; the child process is not a rank of it");
  }
  const auto before_waiting = [refuse_inside] {
    refuse_inside("an operation of this group waits, in a callable or an object of it, for one that comes after it");
  };
  auto state = std::make_shared<state_type>(call, group, before_waiting);
  auto run = [state, &shared, todo = std::optional<Function>(std::move(function))]() mutable {
    std::optional<typename state_type::value_type> result;
    std::exception_ptr problem;
    {
      const served_group serving(shared);
      try {
        if constexpr (std::is_void_v<value>) {
          (*todo)();
          result.emplace();
        } else {
          result.emplace((*todo)());
        }
      } catch (...) {
        problem = std::current_exception();
      }
      todo.reset();  // what the caller gave is gone when the work is done
    }
    return state->finish(std::move(result), std::move(problem));
  };
  // Shared, because what std::function holds must be copyable, and not every object is.
  auto item = std::make_shared<decltype(run)>(std::move(run));
  try {
    shared.queue->push([item] { return (*item)(); });
  } catch (const std::system_error& refusal) {
    // There is no thread at all, so nothing is under way.
    const std::string text = std::string("there is no thread to run it: ") + refusal.what();
    const auto context = context_of(group, call);
    try {
      call.timeout = group.timeout();
      group_access::engine(group).announce(call, &text);
    } catch (...) {
      // The group has a worse problem, which its next operation reports.
    }
    throw engine_error(context, text);
  }
  return work<value>(std::move(state));
}

}  // namespace hfcomm::detail
