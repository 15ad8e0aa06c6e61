// SPDX-License-Identifier: MIT
#pragma once

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <csignal>

#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/core/plain_list.hpp>
#include <hfcomm/core/std_algorithm.hpp>
#include <hfcomm/group/detail/forwarded_signals.hpp>
#include <hfcomm/group/detail/rank_output.hpp>
#include <hfcomm/group/work.hpp>
#include <hfcomm/machine/process_state.hpp>
#include <hfcomm/machine/roster.hpp>
#include <hfcomm/machine/shared_segment.hpp>

namespace hfcomm::detail {

/// The exit status of a rank that an exception ended.
inline constexpr int exception_status = 1;
/// The status of a call of launch() that is wrong.
inline constexpr int usage_status = 2;

/// Makes the system keep the status of children that end, where SIGCHLD is ignored (by `trap '' CHLD` in a shell).
class child_status_scope {
 public:
  child_status_scope() noexcept {
    if (::sigaction(SIGCHLD, nullptr, &before_) == 0 &&
        (before_.sa_handler == SIG_IGN || (before_.sa_flags & SA_NOCLDWAIT) != 0)) {
      struct sigaction keeping{};
      keeping.sa_handler = SIG_DFL;
      changed_ = ::sigaction(SIGCHLD, &keeping, nullptr) == 0;
    }
  }
  child_status_scope(const child_status_scope&) = delete;
  child_status_scope& operator=(const child_status_scope&) = delete;
  ~child_status_scope() { restore(); }

  void restore() noexcept {
    if (std::exchange(changed_, false)) {
      ::sigaction(SIGCHLD, &before_, nullptr);
    }
  }

 private:
  struct sigaction before_{};
  bool changed_ = false;
};

/// Makes the exit records of all ranks, in memory that parent and children share.
inline std::shared_ptr<rendezvous::exit_record> make_exit_records(int ranks) {
  auto memory =
      rendezvous::shared_segment::anonymous(sizeof(rendezvous::exit_record) * static_cast<std::size_t>(ranks));
  auto* const table = reinterpret_cast<rendezvous::exit_record*>(memory->data());
  for (int rank = 0; rank < ranks; ++rank) {
    ::new (table + rank) rendezvous::exit_record{};
  }
  return {std::move(memory), table};
}

/// The processes that launch() has forked, and the exit record of each.
class child_processes {
 public:
  using clock = std::chrono::steady_clock;

  child_processes(int processes, rendezvous::exit_record* table, rank_output& output)
      : table_(table), children_(static_cast<std::size_t>(processes)), output_(output) {}
  child_processes(const child_processes&) = delete;
  child_processes& operator=(const child_processes&) = delete;
  ~child_processes() { stop(); }

  /// Forks rank `index`; returns true in the child.
  [[gnu::cold]] bool fork_rank(std::size_t index) {
    output_.prepare(index);
    const pid_t parent = ::getpid();
    const pid_t pid = ::fork();
    if (pid < 0) {
      rendezvous::throw_system(concat({"fork for rank ", index, " failed"}));
    }
    if (pid == 0) {
      // Ends this process with its parent, so that no orphan is left.
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (::getppid() != parent) {
        ::_exit(exception_status);
      }
      children_.clear();
      return true;
    }
    output_.forget();
    children_[index].pid = pid;
    return false;
  }

  /// Waits for all children, and passes signals on to them. Once one has failed, the others get `time_to_report` before
  /// they are stopped. After a signal that asks for the end they get `grace` instead, or any time, until there is a
  /// second one. Returns 0 or the status of the failed one, which is printed.
  [[gnu::cold]] int wait(const forwarded_signals& signals, clock::duration time_to_report,
                         std::optional<clock::duration> grace) {
    constexpr auto never = clock::time_point::max();
    // Signals that follow each other more quickly are one: `timeout` sends its signal here, and to all of the group.
    constexpr std::chrono::milliseconds shortest_pause{100};
    auto stops_at = never;
    std::optional<clock::time_point> first_ending;
    int ending_signal = 0;
    bool has_failed = false;
    while (collect()) {
      while (const auto received = signals.take()) {
        pass_on(*received);
        const auto now = clock::now();
        if (received->is_ending() && !first_ending) {
          first_ending = now;
          stops_at = std::min(stops_at, grace ? time_after(*grace) : never);
          ending_signal = received->signal;
        } else if (received->is_ending() && now - *first_ending > shortest_pause) {
          stops_at = now;
        }
      }
      if (!has_failed && !first_ending && failure()) {
        has_failed = true;
        stops_at = clock::now() + time_to_report;
      }
      if (clock::now() >= stops_at) {
        stop();
        break;
      }
      pause();
    }
    output_.finish();
    if (const auto culprit = failure()) {
      return report(*culprit);
    }
    return count_stopped() > 0 ? report_stopped(ending_signal) : 0;
  }

 private:
  struct child {
    pid_t pid = 0;
    bool ended = false;
    bool stopped = false;  // by this class, so its status is not its own failure
    bool has_status = true;
    int status = 0;
    int order = 0;
  };

  void pass_on(const forwarded_signals::received& one) const noexcept {
    for (const child& rank : children_) {
      if (!one.from_terminal && rank.pid > 0 && !rank.ended) {
        ::kill(rank.pid, one.signal);
      }
    }
  }

  /// Prints that the ranks were stopped after a signal; returns the status for launch().
  [[nodiscard, gnu::cold]] int report_stopped(int signal) const {
    std::fflush(stdout);
    const int count = count_stopped();
    std::fprintf(stderr, "[hfcomm] launch: %d %s stopped, which still ran after %s\n", count,
                 count == 1 ? "rank was" : "ranks were", rendezvous::signal_name(signal).c_str());
    return 128 + signal;
  }

  /// Prints how the rank to blame failed; returns the status for launch().
  [[nodiscard, gnu::cold]] int report(std::size_t culprit) const {
    const child& first = children_[culprit];
    const auto text = table_[culprit].failure.read();
    std::string others;
    if (const auto stopped = count_stopped(); stopped > 0) {
      others = concat({"; ", stopped, stopped == 1 ? " other rank was" : " other ranks were", " stopped"});
    }
    std::fflush(stdout);
    const auto last_call = table_[culprit].last_call.read();
    std::fprintf(stderr, "[hfcomm] launch: rank %zu (pid %d) %s%s%s\n", culprit, static_cast<int>(first.pid),
                 text ? concat({"failed: ", *text}).c_str() : describe_end(first).c_str(),
                 last_call ? concat({"; it ", *last_call}).c_str() : "", others.c_str());
    return WIFSIGNALED(first.status) ? 128 + WTERMSIG(first.status) : WEXITSTATUS(first.status);
  }

  static std::string describe_end(const child& one) {
    if (!one.has_status) {
      return "ended; its status is unknown, because other code of this process has waited for it (a handler of "
             "SIGCHLD?)";
    }
    return WIFSIGNALED(one.status) ? concat({"was killed by ", rendezvous::signal_name(WTERMSIG(one.status))})
                                   : concat({"exited with status ", WEXITSTATUS(one.status)});
  }

  /// Passes a moment, in which what the ranks print is forwarded.
  void pause() noexcept {
    const auto moment = std::chrono::milliseconds(2);
    const auto begin = std::chrono::steady_clock::now();
    try {
      output_.forward(moment);
    } catch (const std::bad_alloc&) {
      // The ranks' output waits for memory; the ranks do not.
    }
    if (std::chrono::steady_clock::now() - begin < moment) {
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  }

  /// Records the children that have ended; returns false once all have.
  bool collect() {
    bool running = false;
    for (std::size_t index = 0; index < children_.size(); ++index) {
      child& one = children_[index];
      if (one.pid <= 0 || one.ended) {
        continue;
      }
      const pid_t found = ::waitpid(one.pid, &one.status, WNOHANG);
      if (found < 0 && errno == ECHILD) {
        // Other code has waited for it. Then the rank's own report counts.
        const int reported = table_[index].reported_status.load();
        one.has_status = reported >= 0;
        one.status = (reported >= 0 ? reported : exception_status) << 8;
      }
      if (found == one.pid || (found < 0 && errno == ECHILD)) {
        one.ended = true;
        if (one.status != 0) {
          put_dying_first();
        }
        one.order = one.order != 0 ? one.order : ++ended_;
        table_[index].wait_status.store(one.status);
        table_[index].ended.store(1);
      } else {
        running = true;
      }
    }
    return running;
  }

  /// Gives the children that have begun to end their place in the order. Those that fail because of them may be gone
  /// before the system has freed their memory.
  void put_dying_first() {
    for (child& one : children_) {
      if (one.pid > 0 && !one.ended && one.order == 0 && is_ending(one.pid)) {
        one.order = ++ended_;
      }
    }
  }

  /// Returns the rank to blame: the first that failed for a reason of its own, else the first that failed.
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

  /// Ends the children that still run: SIGTERM first, SIGKILL after 200 ms. Waits for those that end already, which may
  /// take minutes where one writes a core file.
  [[gnu::cold]] void stop() noexcept {
    for (const int signal : {SIGTERM, SIGKILL}) {
      if (!collect()) {
        return;
      }
      for (child& one : children_) {
        if (one.pid > 0 && !one.ended && !is_ending(one.pid)) {
          one.stopped = true;
          ::kill(one.pid, signal);
        }
      }
      const auto begin = std::chrono::steady_clock::now();
      while (collect() && std::chrono::steady_clock::now() - begin < std::chrono::milliseconds(200)) {
        pause();
      }
    }
    while (collect()) {
      pause();
    }
  }

  /// Returns whether a child ends already, though it cannot be waited for yet.
  static bool is_ending(pid_t pid) {
    const auto state = rendezvous::state_of_process(pid);
    return state == rendezvous::process_state::ending || state == rendezvous::process_state::dumping_core;
  }

  rendezvous::exit_record* table_;
  plain_list<child> children_;
  rank_output& output_;
  int ended_ = 0;
};

}  // namespace hfcomm::detail
