// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <new>
#include <optional>
#include <source_location>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <csignal>

#include <hfcomm/core/config.hpp>
#include <hfcomm/group/detail/deferred_errors.hpp>
#include <hfcomm/group/detail/session-inl.hpp>
#include <hfcomm/group/launch.hpp>

namespace hfcomm::detail {

/// The exit status of a rank that an exception ended.
inline constexpr int exception_status = 1;

/// One rank from init to end, with everything it throws turned into a text and a status.
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

/// The parent's side of launch().
class child_processes {
 public:
  child_processes(int processes, rendezvous::exit_record* table)
      : table_(table), children_(static_cast<std::size_t>(processes)) {}
  child_processes(const child_processes&) = delete;
  child_processes& operator=(const child_processes&) = delete;
  ~child_processes() { stop(); }

  /// Forks rank `index`; returns true in the child.
  bool fork_rank(std::size_t index) {
    const pid_t parent = ::getpid();
    const pid_t pid = ::fork();
    if (pid < 0) {
      rendezvous::throw_system("starting rank " + std::to_string(index));
    }
    if (pid == 0) {
      // No orphans: should the parent go, this process goes too.
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (::getppid() != parent) {
        ::_exit(exception_status);
      }
      children_.clear();
      return true;
    }
    children_[index].pid = pid;
    return false;
  }

  /// Waits for all; once one has failed, the others get `grace` to report before they are stopped.
  int wait(std::chrono::milliseconds grace) {
    using clock = std::chrono::steady_clock;
    std::optional<clock::time_point> first_failure;
    while (collect()) {
      if (!first_failure && failure()) {
        first_failure = clock::now();
      }
      if (first_failure && clock::now() - *first_failure > grace) {
        stop();
        break;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    const auto culprit = failure();
    if (!culprit) {
      return 0;
    }
    const child& first = children_[*culprit];
    const auto failure_text = table_[*culprit].failure.read();
    std::string others;
    if (const auto stopped = count_stopped(); stopped > 0) {
      others = "; " + std::to_string(stopped) + (stopped == 1 ? " other rank was" : " other ranks were") + " stopped";
    }
    std::fflush(stdout);
    std::fprintf(stderr, "[hfcomm] launch: rank %zu (pid %d) %s%s\n", *culprit, static_cast<int>(first.pid),
                 failure_text ? ("failed: " + *failure_text).c_str() : describe_end(first.status).c_str(),
                 others.c_str());
    return WIFSIGNALED(first.status) ? 128 + WTERMSIG(first.status) : WEXITSTATUS(first.status);
  }

 private:
  struct child {
    pid_t pid = 0;
    bool ended = false;
    bool stopped = false;  // by us: not its own failure
    int status = 0;
    int order = 0;
  };

  static std::string describe_end(int status) {
    return WIFSIGNALED(status) ? "was killed by " + rendezvous::signal_name(WTERMSIG(status))
                               : "exited with status " + std::to_string(WEXITSTATUS(status));
  }

  /// Takes note of who ended; false once all have.
  bool collect() {
    bool running = false;
    for (std::size_t index = 0; index < children_.size(); ++index) {
      child& one = children_[index];
      if (one.pid <= 0 || one.ended) {
        continue;
      }
      const pid_t found = ::waitpid(one.pid, &one.status, WNOHANG);
      if (found < 0 && errno == ECHILD) {
        // Somebody else took it (SIGCHLD is ignored, or a handler reaps): what it said of itself must do.
        const int told = table_[index].reported_status.load();
        one.status = (told >= 0 ? told : exception_status) << 8;
      }
      if (found == one.pid || (found < 0 && errno == ECHILD)) {
        one.ended = true;
        one.order = ++ended_;
        table_[index].wait_status.store(one.status);
        table_[index].ended.store(1);
      } else {
        running = true;
      }
    }
    return running;
  }

  /// The rank to blame: the first to fail on its own account, else the first that failed at all.
  [[nodiscard]] std::optional<std::size_t> failure() const {
    std::optional<std::size_t> blame;
    for (std::size_t index = 0; index < children_.size(); ++index) {
      const child& one = children_[index];
      if (one.ended && !one.stopped && one.status != 0) {
        const auto weight = [&](std::size_t rank) {
          return std::pair(table_[rank].because_of_another.load(), children_[rank].order);
        };
        if (!blame || weight(index) < weight(*blame)) {
          blame = index;
        }
      }
    }
    return blame;
  }

  [[nodiscard]] int count_stopped() const {
    int count = 0;
    for (const child& one : children_) {
      count += one.stopped ? 1 : 0;
    }
    return count;
  }

  void stop() noexcept {
    for (const int signal : {SIGTERM, SIGKILL}) {
      if (!collect()) {
        return;
      }
      for (child& one : children_) {
        if (one.pid > 0 && !one.ended) {
          one.stopped = true;
          ::kill(one.pid, signal);
        }
      }
      for (int patience = 0; patience < 100 && collect(); ++patience) {
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
      }
    }
    while (collect()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }

  rendezvous::exit_record* table_;
  std::vector<child> children_;
  int ended_ = 0;
};

/// Memory for the exit records that parent and children share.
class exit_record_table {
 public:
  explicit exit_record_table(int ranks)
      : segment_(
            rendezvous::shared_segment::anonymous(sizeof(rendezvous::exit_record) * static_cast<std::size_t>(ranks))),
        table_(reinterpret_cast<rendezvous::exit_record*>(segment_->data())) {
    for (int rank = 0; rank < ranks; ++rank) {
      ::new (table_ + rank) rendezvous::exit_record{};
    }
  }
  [[nodiscard]] rendezvous::exit_record* get() const noexcept { return table_; }

 private:
  std::shared_ptr<rendezvous::shared_segment> segment_;
  rendezvous::exit_record* table_;
};

HFCOMM_INLINE int launch(int processes, function_ref<int()> main, std::source_location where) {
  const error_context context{-1, 0, "launch", 0, where};
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
  const exit_record_table table(processes);
  if (processes == 1) {
    const int status = run_rank(main, {}, table.get()[0], where);
    if (const auto failure_text = table.get()[0].failure.read()) {
      std::fprintf(stderr, "[hfcomm] launch: rank 0 failed: %s\n", failure_text->c_str());
    }
    return status;
  }
  std::cout.flush();
  std::fflush(nullptr);  // or every child would print what the parent had not yet
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
      std::cout.flush();
      std::fflush(nullptr);
      ::_exit(status);
    }
  }
  return children.wait(std::chrono::seconds(2));
}

}  // namespace hfcomm::detail
