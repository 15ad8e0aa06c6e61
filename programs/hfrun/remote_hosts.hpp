// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>
#include <csignal>

#include <hfcomm/machine/roster.hpp>

#include "failure.hpp"
#include "job_part.hpp"
#include "line_reader.hpp"
#include "options.hpp"
#include "pipe.hpp"
#include "signals.hpp"

namespace hfrun {

/// Returns a word that every shell takes for that text.
inline std::string quote(const std::string& text) {
  std::string result = "'";
  for (const char c : text) {
    result += c == '\'' ? std::string("'\\''") : std::string(1, c);
  }
  return result + '\'';
}

/// One host, reached through a remote shell that runs `hfrun --serve` there. On this host, hfrun runs that itself,
/// unless the user has named a shell.
class remote_host {
 public:
  /// The output, the errors and the input of the shell.
  static constexpr std::size_t pipes = 3;

  /// Starts the shell, ssh where `shell` is empty. update() gives it the part of the job.
  remote_host(job_part part, std::vector<std::string> shell, const std::string& own_path,
              const forwarded_signals& signals)
      : part_(std::move(part)), unsent_(to_bytes(part_)) {
    auto [input_end, input] = make_pipe("a remote shell");
    auto [output, output_end] = make_pipe("a remote shell");
    auto [errors, errors_end] = make_pipe("a remote shell");
    const bool is_local = shell.empty() && is_this_host(part_.host);
    if (is_local) {
      shell_name_ = "hfrun --serve";
      shell = {own_path, "--serve"};
    } else {
      shell = shell.empty() ? std::vector<std::string>{"ssh"} : shell;
      shell.push_back(part_.host);
      shell.push_back("exec " + quote(own_path) + " --serve");
    }
    std::fflush(nullptr);
    pid_ = ::fork();
    if (pid_ < 0) {
      hfcomm::rendezvous::throw_system("fork for host " + part_.host + " failed");
    }
    if (pid_ == 0) {
      signals.restore_in_child();
      if (is_local) {
        ::setpgid(0, 0);  // The ranks of this host, too, get a terminal's signals from hfrun alone.
      }
      // A terminal's Ctrl-C, and what is sent to the whole group, must reach the ranks, not the connection to them.
      for (const int signal : {SIGINT, SIGUSR1, SIGUSR2}) {
        ::signal(signal, SIG_IGN);
      }
      ::dup2(input_end.get(), STDIN_FILENO);
      ::dup2(output_end.get(), STDOUT_FILENO);
      ::dup2(errors_end.get(), STDERR_FILENO);
      execute(shell);
    }
    input_ = std::move(input);
    output_ = line_reader(std::move(output));
    errors_ = line_reader(std::move(errors));
    ::fcntl(input_.get(), F_SETFL, O_NONBLOCK);  // a shell that does not read must not stop hfrun
  }

  /// Returns what to wait for.
  [[nodiscard]] std::array<pollfd, pipes> events() const {
    return {{{output_.descriptor(), POLLIN, 0},
             {errors_.descriptor(), POLLIN, 0},
             {unsent_.empty() ? -1 : input_.get(), POLLOUT, 0}}};
  }

  /// Prints what has come, sends what is left, and records what went wrong. Returns whether the shell still runs.
  bool update(std::span<const pollfd, pipes> events, std::vector<failure>& failures) {
    if (events[0].revents != 0) {
      output_.read([](std::string_view line) { std::fwrite(line.data(), 1, line.size(), stdout); });
    }
    if (events[1].revents != 0) {
      errors_.read([&](std::string_view line) { take_error_line(line, failures); });
    }
    if (events[2].revents != 0) {
      send();
    }
    const bool pipes_open = output_.descriptor() >= 0 || errors_.descriptor() >= 0;
    if (is_running_ && (!pipes_open || is_killed_)) {  // a child of a killed shell may keep the pipes open
      collect(failures);
    }
    return is_running_;
  }

  /// Returns whether the shell runs and nothing has stopped it.
  [[nodiscard]] bool is_active() const noexcept { return is_running_ && !is_stopped_; }
  /// Returns whether `hfrun --serve` has got the part of the job.
  [[nodiscard]] bool is_reached() const noexcept { return is_reached_; }

  /// Sends a signal to the ranks.
  void signal(int number) { unsent_ += static_cast<char>(number); }

  /// Makes the other end stop its ranks.
  void close() noexcept {
    is_stopped_ = true;
    input_.close();
  }

  /// Ends the shell, where the other end does not answer.
  void kill() noexcept {
    if (is_running_) {
      ::kill(pid_, SIGKILL);
      is_killed_ = true;
    }
  }

  /// Stops the ranks because of a signal, or the shell where it has not reached its host. Returns how to report that.
  failure stop_for(int signal) {
    close();
    if (!is_reached_) {
      kill();
    }
    return {.host = part_.host,
            .status = 128 + signal,
            .how = hfcomm::rendezvous::signal_name(signal) +
                   (is_reached_ ? " came as a second signal and stopped "
                                : " ended " + shell_name_ + " before it had started ") +
                   ranks_of(part_)};
  }

 private:
  [[noreturn]] static void execute(const std::vector<std::string>& shell) {
    std::vector<char*> arguments;
    for (const std::string& argument : shell) {
      arguments.push_back(const_cast<char*>(argument.c_str()));
    }
    arguments.push_back(nullptr);
    ::execvp(arguments.front(), arguments.data());
    std::fprintf(stderr, "[hfrun] cannot execute %s: %s\n", arguments.front(), std::strerror(errno));
    ::_exit(127);
  }

  /// Writes to the other end as much as it takes. Where that is gone, its status tells why.
  void send() {
    const ::ssize_t count = ::write(input_.get(), unsent_.data(), unsent_.size());
    if (count >= 0) {
      unsent_.erase(0, static_cast<std::size_t>(count));
    } else if (errno != EINTR && errno != EAGAIN) {
      input_.close();
    }
  }

  /// Takes "<marker> started" and "<marker> failed RANK PID STATUS HOW" for hfrun; prints any other line. A report may
  /// stand behind what a rank has printed without an end of line, which is printed as a line.
  void take_error_line(std::string_view line, std::vector<failure>& failures) {
    const std::size_t begin = line.find(part_.marker);
    const std::string_view printed = line.substr(0, begin);
    std::fwrite(printed.data(), 1, printed.size(), stderr);
    if (begin == std::string_view::npos) {
      return;
    }
    if (!printed.empty()) {
      std::fputc('\n', stderr);
    }
    line.remove_prefix(begin + part_.marker.size());
    const std::string report(line.substr(0, line.size() - 1));
    is_reached_ = true;
    failure one{.host = part_.host};
    int length = 0;
    if (std::sscanf(report.c_str(), " failed %d %d %d %n", &one.rank, &one.pid, &one.status, &length) == 3) {
      one.how = report.substr(static_cast<std::size_t>(length));
      failures.push_back(one);
      has_reported_ = true;
    }
  }

  void collect(std::vector<failure>& failures) {
    int status = 0;
    if (::waitpid(pid_, &status, WNOHANG) != pid_) {
      return;
    }
    is_running_ = false;
    if (status != 0 && !has_reported_ && !is_stopped_) {
      failures.push_back(
          {.host = part_.host,
           .status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status),
           .how = (WIFSIGNALED(status)
                       ? shell_name_ + " was killed by " + hfcomm::rendezvous::signal_name(WTERMSIG(status))
                       : shell_name_ + " ended with status " + std::to_string(WEXITSTATUS(status))) +
                  ", and with it " + ranks_of(part_)});
    }
  }

  job_part part_;
  std::string shell_name_ = "the remote shell";
  std::string unsent_;  ///< For the input of the shell: the part, then signals.
  int pid_ = 0;
  bool is_running_ = true;
  bool is_reached_ = false;
  bool is_stopped_ = false;
  bool is_killed_ = false;
  bool has_reported_ = false;
  unique_fd input_;
  line_reader output_, errors_;
};

}  // namespace hfrun
