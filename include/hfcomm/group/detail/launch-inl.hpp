// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <source_location>
#include <string>
#include <string_view>
#include <utility>

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <hfcomm/core/config.hpp>
#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/group/detail/child_processes.hpp>
#include <hfcomm/group/detail/deferred_errors.hpp>
#include <hfcomm/group/detail/forwarded_signals.hpp>
#include <hfcomm/group/detail/rank_output.hpp>
#include <hfcomm/group/detail/session-inl.hpp>
#include <hfcomm/group/environment.hpp>
#include <hfcomm/group/launch.hpp>

/// The OpenMP runtime's omp_set_num_threads, under a name that no header of OpenMP declares; null in a program without.
extern "C" [[gnu::weak]] void hfcomm_set_openmp_threads(int threads) asm("omp_set_num_threads");

/// The same for omp_pause_resource_all. 2, omp_pause_hard, ends the threads.
extern "C" [[gnu::weak]] int hfcomm_pause_openmp(int how) asm("omp_pause_resource_all");

/// The thread sanitizer's beginning, which starts a thread of its own; null in a program without.
extern "C" [[gnu::weak]] void hfcomm_thread_sanitizer() asm("__tsan_init");

/// The compiler's function that writes counts of coverage; null in a program without them.
extern "C" [[gnu::weak]] void hfcomm_write_coverage() asm("__gcov_dump");

namespace hfcomm::detail {

/// Runs one rank from init to end; returns its exit status. An exception becomes the text of its exit record.
[[gnu::cold]] HFCOMM_INLINE int run_rank(function_ref<int()> main, const init_options& options,
                                         rendezvous::exit_record& mine, std::source_location where) {
  try {
    deferred_error_sink deferred_errors;
    session own = init(options, where);
    try {
      const int status = main();
      if (status == 0) {
        deferred_errors.rethrow(world());
      }
      return status;
    } catch (...) {
      own.fail(current_exception_text(), current_exception_is_consequence());
      throw;
    }
  } catch (const peer_error& problem) {
    mine.because_of_another.store(1);
    mine.failure.write(problem.what());
  } catch (...) {
    mine.failure.write(current_exception_text());
  }
  return exception_status;
}

/// Throws usage_error where this process cannot launch so many ranks.
HFCOMM_INLINE void check_launch(int processes, const error_context& context) {
  if (processes < 1 || processes > engines::layout::max_ranks) {
    throw_error<usage_error>(
        context, {"cannot run ", processes, " processes; the number must be from 1 to ", engines::layout::max_ranks});
  }
  if (is_initialized()) {
    throw_error<usage_error>(context, {"this process is a rank already; launch comes before init"});
  }
}

/// Runs this process's rank of a job that it does not launch.
HFCOMM_INLINE int run_own_rank(int rank, const launch_options& options, function_ref<int()> main,
                               std::source_location where) {
  rendezvous::exit_record mine;
  init_options job;
  job.max_depth = options.max_depth;
  const int status = run_rank(main, job, mine, where);
  if (const auto text = mine.failure.read()) {
    std::fprintf(stderr, "[hfcomm] launch: rank %d failed: %s\n", rank, text->c_str());
  }
  return status;
}

/// Writes buffered output, which every child of a fork would print again otherwise.
HFCOMM_INLINE void flush_output() {
  std::cout.flush();
  std::fflush(nullptr);
}

/// Sets the number of OpenMP threads of a rank, as torchrun does: ranks with as many threads as cores each would slow
/// each other down. A runtime that is loaded already has read the environment.
HFCOMM_INLINE void limit_openmp_threads() {
  if (std::getenv("OMP_NUM_THREADS") == nullptr) {
    ::setenv("OMP_NUM_THREADS", "1", 0);
    if (hfcomm_set_openmp_threads != nullptr) {
      hfcomm_set_openmp_threads(1);
    }
  }
}

/// Adds what the environment asks for.
HFCOMM_INLINE launch_options with_environment(launch_options options) {
  const char* const prefix = std::getenv("HFCOMM_PREFIX_OUTPUT");
  options.prefix_output = options.prefix_output || (prefix != nullptr && std::string_view(prefix) == "1");
  if (const char* const directory = std::getenv("HFCOMM_OUTPUT_DIRECTORY");
      directory != nullptr && options.output_directory.empty()) {
    options.output_directory = directory;
  }
  return options;
}

/// Says in one line where this process has threads that the ranks, which it has forked, lack. To be called after the
/// forks: libraries that know of forks, such as OpenBLAS, have ended their threads there. `call` is launch's.
[[gnu::cold]] HFCOMM_INLINE void warn_of_threads(const error_context& call) {
  struct ::stat tasks{};
  constexpr auto links_of_none = 2;  // "." and ".."
  if (::stat("/proc/self/task", &tasks) == 0 && tasks.st_nlink > links_of_none + 1 &&
      hfcomm_thread_sanitizer == nullptr) {
    const std::string text = describe(
        call,
        concat({"this process has ", tasks.st_nlink - links_of_none,
                " threads, and each rank only one: what the others had locked stays locked there, and pools of "
                "threads do not work. Start threads in the function that launch calls, or the ranks with hfrun"}));
    std::fprintf(stderr, "[hfcomm] %s\n", text.c_str());
  }
}

/// The end of a rank's process. What was registered for the end since the fork happens; what was registered before it
/// is the parent's, and does not. The fork's child would join threads that it lacks, and remove files that the parent
/// needs.
class rank_exit {
 public:
  /// To be called first in the child.
  static void prepare() {
#if defined(__GLIBC__)
    ::on_exit(&end, nullptr);  // called after all handlers that are registered later
#endif
  }
  [[noreturn]] static void exit(int status) {
    is_prepared() = true;
#if defined(__GLIBC__)
    std::exit(status);
#else
    end(status, nullptr);
#endif
  }

 private:
  /// Whether `exit` ends the process, not the user's call.
  static bool& is_prepared() noexcept {
    static bool is = false;
    return is;
  }
  static void end(int status, void* /*argument*/) {
    if (is_prepared()) {
      flush_output();
      if (hfcomm_write_coverage != nullptr) {
        hfcomm_write_coverage();
      }
      ::_exit(status);
    }
  }
};

[[gnu::cold]] HFCOMM_INLINE int launch_ranks(const launch_options& options, function_ref<int()> main,
                                             std::source_location where) {
  if (hfcomm_pause_openmp != nullptr) {
    hfcomm_pause_openmp(2);  // the ranks' OpenMP would wait for threads that they lack
  }
  flush_output();
  const auto table = make_exit_records(options.processes);
  init_options job;
  job.init_method = concat({"job://", rendezvous::random_id()});
  job.world_size = options.processes;
  job.max_depth = options.max_depth;
  rank_output output(options);
  child_status_scope statuses;
  const forwarded_signals signals;
  child_processes children(options.processes, table.get(), output);
  for (int index = 0; index < options.processes; ++index) {
    if (children.fork_rank(static_cast<std::size_t>(index))) {
      statuses.restore();
      signals.restore();
      if (!options.runs_all_exit_handlers) {
        rank_exit::prepare();
      }
      output.redirect();
      limit_openmp_threads();
      rendezvous::own_launch() = {table.get(), index, static_cast<std::int32_t>(::getppid())};
      job.rank = index;
      const int status = run_rank(main, job, table.get()[index], where);
      table.get()[index].reported_status.store(status & 0xff);
      flush_output();
      rank_exit::exit(status);
    }
  }
  warn_of_threads({-1, 0, "launch", 0, where});
  signals.unblock();
  return children.wait(signals, std::chrono::seconds(2), options.grace);
}

[[gnu::cold]] HFCOMM_INLINE int launch(launch_options options, function_ref<int()> main, std::source_location where) {
  try {
    check_launch(options.processes, {-1, 0, "launch", 0, where});
    const launch_environment found = detect_environment(where);
    if (options.processes == 1 || found.world_size > 1) {
      return run_own_rank(found.rank, options, main, where);
    }
    return launch_ranks(with_environment(std::move(options)), main, where);
  } catch (const usage_error& problem) {
    std::fprintf(stderr, "[hfcomm] %s\n", problem.what());
    return usage_status;
  } catch (const error& problem) {
    std::fprintf(stderr, "[hfcomm] %s\n", problem.what());
    return exception_status;
  } catch (const std::exception& problem) {
    std::fprintf(stderr, "[hfcomm] launch: %s\n", problem.what());
    return exception_status;
  }
}

}  // namespace hfcomm::detail
