// SPDX-License-Identifier: MIT
#pragma once

#include <concepts>
#include <functional>
#include <optional>
#include <type_traits>
#include <utility>

#include <hfcomm/core/call_site.hpp>
#include <hfcomm/group/process_group.hpp>
#include <hfcomm/group/session.hpp>

namespace hfcomm {

namespace detail {

/// The result of a function that runs on some ranks only: an optional value, or true if it ran and returns nothing.
template <class Result>
struct run_result : std::type_identity<std::optional<std::remove_cvref_t<Result>>> {};
template <class Result>
  requires std::is_void_v<Result>
struct run_result<Result> : std::type_identity<bool> {};

template <class Function>
using run_result_t = typename run_result<std::invoke_result_t<Function&>>::type;

template <class Function>
run_result_t<Function> run_if(bool runs, Function& function) {
  if (!runs) {
    return run_result_t<Function>();
  }
  if constexpr (std::is_void_v<std::invoke_result_t<Function&>>) {
    std::invoke(function);
    return true;
  } else {
    return run_result_t<Function>(std::in_place, std::invoke(function));
  }
}

/// Throws usage_error unless the group has such a rank.
void require_rank(int rank, const process_group& group, call_site where);

}  // namespace detail

/// Runs `function` on one rank of the group and returns its value there (a copy of what it returns a reference to);
/// nullopt elsewhere. If the function returns nothing, it is true on that rank, false elsewhere.
///
/// Not collective: no rank waits, and no other rank learns of an exception of `function`. Throws usage_error on every
/// rank that calls where the group has no such rank. (accelerate's `on_process`.)
template <std::invocable Function>
detail::run_result_t<Function> on_rank(int rank, Function function, const process_group& group = world(),
                                       call_site where = call_site::current()) {
  detail::require_rank(rank, group, where);
  return detail::run_if(group.rank() == rank, function);
}

}  // namespace hfcomm
