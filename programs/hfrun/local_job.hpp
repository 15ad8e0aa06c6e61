// SPDX-License-Identifier: MIT
#pragma once

#include <cstdio>
#include <string>
#include <utility>

#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <hfcomm/machine/roster.hpp>

#include "failure.hpp"
#include "job_part.hpp"
#include "pipe.hpp"
#include "rank_processes.hpp"
#include "signals.hpp"

namespace hfrun {

/// A job on this machine. A child of this process starts the ranks. So where one of the two is killed, the other one
/// ends the ranks and all that they have started.
class local_job {
 public:
  /// Calls `run_ranks` with the descriptor of the signals for the ranks, in the child, and takes its result as the
  /// child's exit status. The signals end where this process does.
  template <class RunRanks>
  local_job(const job_part& part, const forwarded_signals& signals, RunRanks run_ranks)
      : part_(part), signals_(signals) {
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);  // for what ranks leave behind where the child is killed
    auto [to_child_end, to_child] = make_pipe("the signals of the ranks");
    auto [ended, ended_end] = make_pipe("the end of the ranks");
    std::fflush(nullptr);
    child_ = ::fork();
    if (child_ < 0) {
      hfcomm::rendezvous::throw_system("fork for the ranks failed");
    }
    if (child_ == 0) {
      to_child.close();
      ended.close();
      const int status = run_ranks(to_child_end.get());
      std::fflush(nullptr);
      ::_exit(status);
    }
    to_child_ = std::move(to_child);
    ended_ = std::move(ended);
    signals.unblock();
  }

  /// Waits until the job has ended; returns the status.
  int run() {
    int status = 0;
    while (::waitpid(child_, &status, WNOHANG) != child_) {
      if (const auto received = signals_.take(); received && !received->from_terminal) {
        const char number = static_cast<char>(received->signal);
        [[maybe_unused]] const auto written = ::write(to_child_.get(), &number, 1);  // a child that is gone needs none
      }
      pollfd end{ended_.get(), POLLIN, 0};
      ::poll(&end, 1, 20);
    }
    if (status != 0) {
      rank_processes::end_orphans();
    }
    if (!WIFSIGNALED(status)) {
      return WEXITSTATUS(status);
    }
    const failure killed{.host = part_.host,
                         .status = 128 + WTERMSIG(status),
                         .how = "the process that started the ranks was killed by " +
                                hfcomm::rendezvous::signal_name(WTERMSIG(status)) + ", and with it " + ranks_of(part_)};
    print(killed);
    return killed.status;
  }

 private:
  const job_part& part_;
  const forwarded_signals& signals_;
  int child_ = 0;
  unique_fd to_child_, ended_;
};

}  // namespace hfrun
