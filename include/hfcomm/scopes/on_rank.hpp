// SPDX-License-Identifier: MIT
#pragma once

#include <concepts>
#include <functional>
#include <optional>
#include <source_location>
#include <string>
#include <type_traits>
#include <utility>

#include <hfcomm/group/detail/running_call.hpp>
#include <hfcomm/group/session.hpp>

namespace hfcomm {

namespace detail {

/// What a function that runs on some ranks only leaves behind: whether it ran, and its value where it has one.
template <class Result>
struct perhaps_run : std::type_identity<std::optional<std::remove_cvref_t<Result>>> {};
template <class Result>
  requires std::is_void_v<Result>
struct perhaps_run<Result> : std::type_identity<bool> {};

template <class Function>
using perhaps_run_t = typename perhaps_run<std::invoke_result_t<Function&>>::type;

template <class Function>
perhaps_run_t<Function> run_if(bool runs, Function& function) {
  if (!runs) {
    return perhaps_run_t<Function>();
  }
  if constexpr (std::is_void_v<std::invoke_result_t<Function&>>) {
    std::invoke(function);
    return true;
  } else {
    return perhaps_run_t<Function>(std::in_place, std::invoke(function));
  }
}

}  // namespace detail

/// Runs `function` on one rank of the group and returns its value there (a copy of what it returns a reference to);
/// nullopt elsewhere. Where the function returns nothing: true on that rank, false elsewhere.
///
/// Not collective: nobody waits for anyone, and an exception of `function` is that rank's own affair. Throws
/// usage_error where the group has no such rank: on every rank that calls, for each can see it. (accelerate's
/// `on_process`.)
template <std::invocable Function>
detail::perhaps_run_t<Function> on_rank(int rank, Function function, const process_group& group = world(),
                                        std::source_location where = std::source_location::current()) {
  if (rank < 0 || rank >= group.size()) {
    throw usage_error({group.rank(), group.size(), "on_rank", 0, where},
                      engines::no_such_rank("rank", rank, group.size()));
  }
  return detail::run_if(group.rank() == rank, function);
}

}  // namespace hfcomm
