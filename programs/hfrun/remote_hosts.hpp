// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>
#include <csignal>

#include <hfcomm/machine/shared_segment.hpp>

#include "failure.hpp"
#include "job_part.hpp"
#include "line_reader.hpp"
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

/// One host, reached through a remote shell that runs `hfrun --serve` there.
class remote_host {
 public:
  /// Starts the shell and gives it the part of the job.
  remote_host(job_part part, std::vector<std::string> shell, const std::string& own_path,
              const forwarded_signals& signals)
      : part_(std::move(part)) {
    auto [input_end, input] = make_pipe();
    auto [output, output_end] = make_pipe();
    auto [errors, errors_end] = make_pipe();
    shell.push_back(part_.host);
    shell.push_back("exec " + quote(own_path) + " --serve");
    std::fflush(nullptr);
    pid_ = ::fork();
    if (pid_ < 0) {
      hfcomm::rendezvous::throw_system("fork for host " + part_.host + " failed");
    }
    if (pid_ == 0) {
      signals.restore_in_child();
      ::signal(SIGINT, SIG_IGN);  // a terminal's Ctrl-C must reach the ranks, not the connection to them
      ::dup2(input_end.get(), STDIN_FILENO);
      ::dup2(output_end.get(), STDOUT_FILENO);
      ::dup2(errors_end.get(), STDERR_FILENO);
      execute(shell);
    }
    input_ = std::move(input);
    output_ = line_reader(std::move(output));
    errors_ = line_reader(std::move(errors));
    send(to_bytes(part_));
  }

  /// Adds the pipes to wait for.
  void add_events(std::vector<pollfd>& events) const {
    for (const line_reader* reader : {&output_, &errors_}) {
      events.push_back({reader->descriptor(), POLLIN, 0});
    }
  }

  /// Prints what has come, and records what went wrong. Returns whether the shell still runs.
  bool update(const std::array<bool, 2>& readable, std::vector<failure>& failures) {
    if (readable[0]) {
      output_.read([](std::string_view line) { std::fwrite(line.data(), 1, line.size(), stdout); });
    }
    if (readable[1]) {
      errors_.read([&](std::string_view line) { take_error_line(line, failures); });
    }
    const bool pipes_open = output_.descriptor() >= 0 || errors_.descriptor() >= 0;
    if (is_running_ && !pipes_open) {
      collect(failures);
    }
    return is_running_;
  }

  /// Sends a signal to the ranks.
  void signal(int number) { send(std::string(1, static_cast<char>(number))); }

  /// Makes the other end stop its ranks.
  void close() noexcept {
    is_stopped_ = true;
    input_.close();
  }

  /// Ends the shell, where the other end does not answer.
  void kill() const noexcept {
    if (is_running_) {
      ::kill(pid_, SIGKILL);
    }
  }

 private:
  using unique_fd = hfcomm::rendezvous::unique_fd;

  static std::pair<unique_fd, unique_fd> make_pipe() {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
      hfcomm::rendezvous::throw_system("making a pipe for a remote shell");
    }
    return {unique_fd(ends[0]), unique_fd(ends[1])};
  }

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

  /// Writes to the other end. Where that is gone, its status tells why.
  void send(const std::string& bytes) {
    for (std::size_t sent = 0; sent < bytes.size() && input_;) {
      const ::ssize_t count = ::write(input_.get(), bytes.data() + sent, bytes.size() - sent);
      if (count < 0 && errno != EINTR) {
        input_.close();
      }
      sent += static_cast<std::size_t>(count > 0 ? count : 0);
    }
  }

  /// Takes "<marker> failed RANK PID STATUS HOW" for hfrun; prints any other line. A report may stand behind what a
  /// rank has printed without an end of line, which is printed as a line.
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
      const std::string ranks = part_.ranks == 1 ? "rank " + std::to_string(part_.first_rank)
                                                 : "ranks " + std::to_string(part_.first_rank) + " to " +
                                                       std::to_string(part_.first_rank + part_.ranks - 1);
      failures.push_back(
          {.host = part_.host,
           .status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status),
           .how = (WIFSIGNALED(status)
                       ? "the remote shell was killed by " + hfcomm::rendezvous::signal_name(WTERMSIG(status))
                       : "the remote shell ended with status " + std::to_string(WEXITSTATUS(status))) +
                  ", and with it " + ranks});
    }
  }

  job_part part_;
  int pid_ = 0;
  bool is_running_ = true;
  bool is_stopped_ = false;
  bool has_reported_ = false;
  unique_fd input_;
  line_reader output_, errors_;
};

}  // namespace hfrun
