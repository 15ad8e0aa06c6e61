// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <csignal>

#include <hfcomm/group/detail/rank_output.hpp>
#include <hfcomm/machine/process_state.hpp>
#include <hfcomm/machine/roster.hpp>

#include "failure.hpp"
#include "job_part.hpp"
#include "signals.hpp"

namespace hfrun {

/// The ranks of one host, as child processes.
class rank_processes {
 public:
  rank_processes(const job_part& part, const forwarded_signals& signals)
      : part_(part), options_(output_options(part)), output_(options_) {
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);  // what a rank leaves behind becomes a child of this process
    for (int index = 0; index < part.ranks; ++index) {
      start(index, signals);
    }
  }
  rank_processes(const rank_processes&) = delete;
  rank_processes& operator=(const rank_processes&) = delete;
  ~rank_processes() { stop(); }

  /// Prints what the ranks print, for that time. Returns whether some still run.
  bool run_for(std::chrono::milliseconds time) {
    output_.forward(time);
    const bool running = collect();
    if (!running) {
      output_.finish();
    }
    return running;
  }

  /// Returns the first failure. A rank that dies of a signal may take long to be gone, while it writes a core file; the
  /// others, which notice its end, may be gone before. It is waited for, and counts as the first.
  [[nodiscard]] std::optional<failure> first_failure() const {
    const rank* first = nullptr;
    for (const rank& one : ranks_) {
      const bool failed = one.order > 0 && !one.is_stopped && (!one.has_ended || one.status != 0);
      if (failed && (first == nullptr || one.order < first->order)) {
        first = &one;
      }
    }
    if (first == nullptr || !first->has_ended) {
      return std::nullopt;
    }
    const int status = first->status;
    const int number = static_cast<int>(first - ranks_.data()) + part_.first_rank;
    return WIFSIGNALED(status) ? failure{number, part_.host, first->pid, 128 + WTERMSIG(status),
                                         "was killed by " + hfcomm::rendezvous::signal_name(WTERMSIG(status))}
                               : failure{number, part_.host, first->pid, WEXITSTATUS(status),
                                         "exited with status " + std::to_string(WEXITSTATUS(status))};
  }

  void send(int signal) const noexcept {
    for (const rank& one : ranks_) {
      if (!one.has_ended) {
        ::kill(one.pid, signal);
      }
    }
  }

  /// Ends the ranks that still run: SIGTERM first, SIGKILL after 200 ms. Then ends what they have left behind: a rank
  /// may be a shell, whose program outlives it.
  void stop() noexcept {
    for (const int signal : {SIGTERM, SIGKILL}) {
      for (rank& one : ranks_) {
        if (!one.has_ended && !is_ending(one.pid)) {
          one.is_stopped = true;
          ::kill(one.pid, signal);
        }
      }
      const auto give_up = std::chrono::steady_clock::now() + std::chrono::milliseconds(200);
      while (collect() && std::chrono::steady_clock::now() < give_up) {
        output_.forward(std::chrono::milliseconds(5));
      }
    }
    while (collect()) {
      output_.forward(std::chrono::milliseconds(5));
    }
    end_orphans();
    output_.finish();
  }

  /// Ends all children that this process still has, and then theirs.
  static void end_orphans() noexcept {
    const std::string list = "/proc/self/task/" + std::to_string(::getpid()) + "/children";
    for (int generation = 0; generation < 100; ++generation) {
      std::ifstream children(list);
      bool found = false;
      for (int pid = 0; children >> pid; found = true) {
        ::kill(pid, SIGKILL);
        ::waitpid(pid, nullptr, 0);
      }
      if (!found) {
        return;
      }
    }
  }

 private:
  struct rank {
    int pid = 0;
    bool has_ended = false;
    bool is_stopped = false;  ///< Its status is not its own failure.
    int status = 0;
    int order = 0;  ///< Of its end, from 1; 0 while it runs.
  };

  static hfcomm::launch_options output_options(const job_part& part) {
    hfcomm::launch_options options;
    options.processes = part.ranks;
    options.prefix_output = part.prefix;
    if (const char* directory = std::getenv("HFCOMM_OUTPUT_DIRECTORY"); directory != nullptr) {
      options.output_directory = directory;
    }
    return options;
  }

  void start(int index, const forwarded_signals& signals) {
    const int number = part_.first_rank + index;
    output_.prepare(static_cast<std::size_t>(number));
    std::fflush(nullptr);
    const int parent = ::getpid();
    const int pid = ::fork();
    if (pid < 0) {
      hfcomm::rendezvous::throw_system("fork for rank " + std::to_string(number) + " failed");
    }
    if (pid == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // no rank outlives hfrun
      if (::getppid() == parent) {
        signals.restore_in_child();
        output_.redirect();
        execute(index);
      }
      ::_exit(127);
    }
    output_.forget();
    ranks_.push_back({.pid = pid});
  }

  /// Becomes the program, or prints why not.
  void execute(int index) {
    const int number = part_.first_rank + index;
    for (const std::string& variable : part_.environment) {
      const auto equals = variable.find('=');
      ::setenv(variable.substr(0, equals).c_str(), variable.substr(equals + 1).c_str(), 1);
    }
    ::setenv("HFCOMM_RANK", std::to_string(number).c_str(), 1);
    ::setenv("HFCOMM_LOCAL_RANK", std::to_string(index).c_str(), 1);
    ::setenv("HFCOMM_LOCAL_SIZE", std::to_string(part_.ranks).c_str(), 1);
    if (!part_.has_input || number != 0) {
      ::dup2(::open("/dev/null", O_RDONLY | O_CLOEXEC), STDIN_FILENO);
    }
    std::vector<char*> arguments;
    for (const std::string& argument : part_.command) {
      arguments.push_back(const_cast<char*>(argument.c_str()));
    }
    arguments.push_back(nullptr);
    ::execvp(arguments.front(), arguments.data());
    std::fprintf(stderr, "[hfrun] rank %d on %s cannot execute %s: %s\n", number, part_.host.c_str(), arguments.front(),
                 std::strerror(errno));
  }

  static bool is_ending(int pid) {
    const auto state = hfcomm::rendezvous::state_of_process(pid);
    return state == hfcomm::rendezvous::process_state::ending ||
           state == hfcomm::rendezvous::process_state::dumping_core;
  }

  /// Records the ranks that have ended; returns whether some still run.
  bool collect() noexcept {
    bool running = false;
    for (rank& one : ranks_) {
      if (one.has_ended) {
        continue;
      }
      if (::waitpid(one.pid, &one.status, WNOHANG) != one.pid) {
        running = true;
        continue;
      }
      one.has_ended = true;
      if (one.status != 0) {
        put_dying_first();
      }
      one.order = one.order != 0 ? one.order : ++ended_;
    }
    return running;
  }

  void put_dying_first() noexcept {
    for (rank& one : ranks_) {
      if (!one.has_ended && one.order == 0 && is_ending(one.pid)) {
        one.order = ++ended_;
      }
    }
  }

  const job_part& part_;
  hfcomm::launch_options options_;
  hfcomm::detail::rank_output output_;
  std::vector<rank> ranks_;
  int ended_ = 0;
};

}  // namespace hfrun
