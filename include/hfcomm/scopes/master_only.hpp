// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <concepts>
#include <optional>
#include <type_traits>
#include <utility>

#include <hfcomm/collectives/broadcast.hpp>
#include <hfcomm/core/call_site.hpp>
#include <hfcomm/scopes/master_first.hpp>
#include <hfcomm/scopes/on_rank.hpp>

namespace hfcomm {

/// Runs `function` on the group's rank 0 alone and returns its value there (a copy of what it returns a reference to);
/// nullopt elsewhere. If the function returns nothing, it is true on rank 0, false elsewhere.
///
/// Not collective: the other ranks go on at once, and do not learn of an exception of `function`. `run_master_only`
/// gives the value to all ranks. (MMEngine's `master_only`.)
template <std::invocable Function>
detail::run_result_t<Function> master_only(Function function, const process_group& group = world()) {
  return detail::run_if(group.rank() == 0, function);
}

/// Runs `function` on the group's rank 0 alone and returns its value on every rank. The value is serializable, or void.
///
/// Collective. The other ranks wait for the function to end, up to `timeout` (a deadline of its own, 24 hours unless
/// given, as in `master_first`), but notice a dead rank 0 at once. Rank 0 waits until they have received the value, up
/// to the group's deadline. It does not wait where the function returns nothing. Where the function throws, or
/// serializing its value does, rank 0 throws that exception and every other rank peer_error with its text; the group
/// stays usable.
///
/// Inside the function rank 0 must not call operations of this group: nobody could answer (usage_error).
template <std::invocable Function>
  requires std::is_void_v<std::invoke_result_t<Function&>> ||
           serializable<std::remove_cvref_t<std::invoke_result_t<Function&>>>
std::remove_cvref_t<std::invoke_result_t<Function&>> run_master_only(
    Function function, const process_group& group = world(),
    std::chrono::nanoseconds timeout = master_first::default_timeout, call_site where = call_site::current()) {
  using value_type = std::remove_cvref_t<std::invoke_result_t<Function&>>;
  if constexpr (std::is_void_v<value_type>) {
    detail::master_section section("run_master_only", group, timeout, where);
    if (group.rank() == 0) {
      section.run(function);
    }
  } else {
    std::optional<value_type> value;
    {
      detail::master_section section("run_master_only", group, timeout, where);
      if (group.rank() == 0) {
        value.emplace(section.run(function));
      } else {
        value.emplace();
      }
    }
    detail::broadcast_object(detail::object_call<value_type>("run_master_only", engines::movement::from_root, 0, where),
                             *value, group.with_early_leave(false));
    return std::move(*value);
  }
}

}  // namespace hfcomm
