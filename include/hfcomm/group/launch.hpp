// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <concepts>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include <hfcomm/core/call_site.hpp>
#include <hfcomm/core/function_ref.hpp>
#include <hfcomm/group/session.hpp>

namespace hfcomm {

/// Options of launch().
struct launch_options {
  /// The number of ranks, from 1 to 1024.
  int processes = 1;
  /// Whether each line that a rank prints begins with "[rank 3] ". Also asked for by HFCOMM_PREFIX_OUTPUT=1.
  bool prefix_output = false;
  /// A directory for files rank-0.log, rank-1.log, ..., which get all that the ranks print; "": there are none. It is
  /// made if it is missing and its parent is there. With it, `prefix_output` has no effect. Also asked for by
  /// HFCOMM_OUTPUT_DIRECTORY. Existing files are overwritten.
  std::string output_directory{};
  /// How long the ranks may still run after the first signal that asks for the job's end, to write a checkpoint for
  /// instance; nullopt: as long as they want. The second such signal ends them at once.
  std::optional<std::chrono::nanoseconds> grace{};
  /// Whether a rank that ends destroys all static objects and calls all exit handlers, also those that were there
  /// before `launch`. Those are the parent's, which destroys and calls them itself. Needed by a rank that writes into a
  /// file of a global object.
  bool runs_all_exit_handlers = false;
  /// See init_options::max_depth. Has an effect under launchers, too.
  std::size_t max_depth = 0;
};

namespace detail {

[[gnu::cold]] int launch(launch_options options, function_ref<int()> main, call_site where);

}  // namespace detail

/// Runs `main` on `processes` ranks of this machine: forks them, and in each calls init(), `main()` and ends cleanly.
/// `main` returns void or an exit status. With one process it runs in this process.
///
/// A launcher that has started this process comes first (torchrun, mpirun, srun: see detect_environment). Then `main`
/// runs once, in this process, as the rank that the launcher's variables set, and no option but `max_depth` has an
/// effect. So one program runs alone and under every launcher. A launcher's job of one process counts as none.
///
/// The first failure is printed with its rank: an exception's text, an exit status or a signal, and what the rank had
/// called last where another rank has noticed its end. That includes errors of a dropped work or a scope's end that no
/// later operation threw. The other ranks get 2 s to report, then are stopped. No child outlives this process.
///
/// SIGINT, SIGTERM, SIGHUP, SIGUSR1 and SIGUSR2 go on to the ranks, which have the handlers that they set, or else
/// those that this process had before. This process waits for them then, also where a rank fails: see
/// launch_options::grace. Signals that this process ignores stay ignored.
///
/// Returns 0, or the failed rank's status (128 + the signal's number where one killed it). Does not throw: for wrong
/// arguments, or where this process is a rank already, it prints a line and returns 2; where the system has no process
/// or memory for a rank, 1.
///
/// Each of several ranks gets 1 OpenMP thread, as under torchrun, unless OMP_NUM_THREADS is set. Call it before
/// starting threads, which the ranks lack, and before init(). Those that OpenMP has started are ended; of others one
/// line on stderr tells. A rank that ends destroys the static objects that were made in it, and calls the exit handlers
/// that it has registered; see launch_options::runs_all_exit_handlers for the others. Its output is flushed, and counts
/// of coverage are written.
template <std::invocable Main>
[[nodiscard("it is the exit status of the program")]] int launch(const launch_options& options, Main main,
                                                                 call_site where = call_site::current()) {
  const auto status_of_main = [&main]() -> int {
    if constexpr (std::is_void_v<std::invoke_result_t<Main&>>) {
      main();
      return 0;
    } else {
      return static_cast<int>(main());
    }
  };
  return detail::launch(options, status_of_main, where);
}

template <std::invocable Main>
[[nodiscard("it is the exit status of the program")]] int launch(int processes, Main main,
                                                                 call_site where = call_site::current()) {
  return launch(launch_options{.processes = processes}, std::move(main), where);
}

}  // namespace hfcomm
