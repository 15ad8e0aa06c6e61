// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <source_location>
#include <string>
#include <utility>

#include <unistd.h>

#include <hfcomm/core/config.hpp>
#include <hfcomm/group/detail/child_processes.hpp>
#include <hfcomm/group/detail/deferred_errors.hpp>
#include <hfcomm/group/detail/session-inl.hpp>
#include <hfcomm/group/launch.hpp>

namespace hfcomm::detail {

/// Runs one rank from init to end; returns its exit status. An exception becomes the text of its exit record.
HFCOMM_INLINE int run_rank(function_ref<int()> main, const init_options& options, rendezvous::exit_record& mine,
                           std::source_location where) {
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
    throw usage_error(context, "cannot run " + std::to_string(processes) + " processes; the number must be from 1 to " +
                                   std::to_string(engines::layout::max_ranks));
  }
  if (is_initialized()) {
    throw usage_error(context, "this process is a rank already; launch comes before init");
  }
  if (processes > 1) {
    if (const auto outer = detect_environment(); outer.world_size > 1) {
      throw usage_error(context, "asked for " + std::to_string(processes) + " processes, but " + outer.source +
                                     " variables make this process rank " + std::to_string(outer.rank) + " of " +
                                     std::to_string(outer.world_size) + "; use launch(1, ...) there");
    }
  }
}

/// Runs the only rank of a job in this process.
HFCOMM_INLINE int run_single_rank(function_ref<int()> main, std::source_location where) {
  rendezvous::exit_record mine;
  const int status = run_rank(main, {}, mine, where);
  if (const auto text = mine.failure.read()) {
    std::fprintf(stderr, "[hfcomm] launch: rank 0 failed: %s\n", text->c_str());
  }
  return status;
}

/// Writes buffered output, which every child of a fork would print again otherwise.
HFCOMM_INLINE void flush_output() {
  std::cout.flush();
  std::fflush(nullptr);
}

HFCOMM_INLINE int launch(int processes, function_ref<int()> main, std::source_location where) {
  check_launch(processes, {-1, 0, "launch", 0, where});
  if (processes == 1) {
    return run_single_rank(main, where);
  }
  flush_output();
  const exit_record_table table(processes);
  init_options options;
  options.init_method = "job://" + rendezvous::random_id();
  options.world_size = processes;
  child_processes children(processes, table.get());
  for (int index = 0; index < processes; ++index) {
    if (children.fork_rank(static_cast<std::size_t>(index))) {
      rendezvous::exit_records_of_launch() = table.get();
      options.rank = index;
      const int status = run_rank(main, options, table.get()[index], where);
      table.get()[index].reported_status.store(status & 0xff);
      flush_output();
      ::_exit(status);
    }
  }
  return children.wait(std::chrono::seconds(2));
}

}  // namespace hfcomm::detail
