// SPDX-License-Identifier: MIT
#pragma once

#include <concepts>
#include <source_location>
#include <type_traits>

#include <hfcomm/core/function_ref.hpp>
#include <hfcomm/group/session.hpp>

namespace hfcomm {

namespace detail {

int launch(int processes, function_ref<int()> main, std::source_location where);

}  // namespace detail

/// Runs `main` on `processes` ranks of this machine: forks them, and in each calls init(), `main()` and ends cleanly.
/// `main` returns void or an exit status. With `processes` == 1 it runs in this process, as the rank that the
/// environment sets. So a program that calls launch(1, main) also runs unchanged under torchrun and other launchers.
///
/// The first failure is printed with its rank: an exception's text, an exit status or a signal. That includes errors of
/// a dropped work or a scope's end that no later operation threw. The other ranks get 2 s to report, then are stopped.
/// Returns 0, or the failed rank's status (128 + the signal's number where one killed it). No child outlives this
/// process. Call it before starting threads and before init(). The children leave without running static
/// destructors or exit handlers; their output is flushed.
///
/// Throws usage_error where `processes` is not from 1 to 1024, where this process is a rank already, or where
/// `processes` is more than 1 and a launcher has started this process as one of several. Throws engine_error where the
/// system has no process or memory for a rank.
template <std::invocable Main>
int launch(int processes, Main main, std::source_location where = std::source_location::current()) {
  const auto status_of_main = [&main]() -> int {
    if constexpr (std::is_void_v<std::invoke_result_t<Main&>>) {
      main();
      return 0;
    } else {
      return static_cast<int>(main());
    }
  };
  return detail::launch(processes, status_of_main, where);
}

}  // namespace hfcomm
