// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include <sys/signalfd.h>
#include <unistd.h>
#include <csignal>

#include <hfcomm/machine/shared_segment.hpp>

namespace hfrun {

/// The signals that end a program, which hfrun passes on to its ranks.
inline constexpr std::array<int, 3> ending_signals = {SIGINT, SIGTERM, SIGHUP};

/// Returns which of them this process ignores. nohup and a script's `program &` start programs so.
inline std::vector<int> ignored_signals() {
  std::vector<int> ignored;
  for (const int signal : ending_signals) {
    struct sigaction current{};
    if (::sigaction(signal, nullptr, &current) == 0 && current.sa_handler == SIG_IGN) {
      ignored.push_back(signal);
    }
  }
  return ignored;
}

/// Makes this process ignore those of the ending signals, and no others.
inline void ignore_only(const std::vector<int>& ignored) {
  for (const int signal : ending_signals) {
    const bool is_ignored = std::find(ignored.begin(), ignored.end(), signal) != ignored.end();
    ::signal(signal, is_ignored ? SIG_IGN : SIG_DFL);
  }
}

/// While this is there, the ending signals are kept for take(), instead of ending hfrun. Those that hfrun was started
/// to ignore stay ignored, here and in its children.
class forwarded_signals {
 public:
  struct received {
    int signal = 0;
    bool from_terminal = false;  ///< Then the children have got it, too.
  };

  forwarded_signals() {
    const std::vector<int> ignored = ignored_signals();
    ::sigemptyset(&set_);
    for (const int signal : ending_signals) {
      if (std::find(ignored.begin(), ignored.end(), signal) == ignored.end()) {
        ::sigaddset(&set_, signal);
      }
    }
    ::sigprocmask(SIG_BLOCK, &set_, nullptr);
    descriptor_ = hfcomm::rendezvous::unique_fd(::signalfd(-1, &set_, SFD_NONBLOCK | SFD_CLOEXEC));
    // A reader that is gone is noticed by the write.
    pipe_handler_ = ::signal(SIGPIPE, SIG_IGN);
  }
  forwarded_signals(const forwarded_signals&) = delete;
  forwarded_signals& operator=(const forwarded_signals&) = delete;

  [[nodiscard]] std::optional<received> take() const {
    signalfd_siginfo info{};
    if (::read(descriptor_.get(), &info, sizeof(info)) != static_cast<::ssize_t>(sizeof(info))) {
      return std::nullopt;
    }
    return received{static_cast<int>(info.ssi_signo), info.ssi_code == SI_KERNEL};
  }

  /// Gives a child the signals back, as hfrun has got them.
  void restore_in_child() const {
    ::signal(SIGPIPE, pipe_handler_);
    ::sigprocmask(SIG_UNBLOCK, &set_, nullptr);
  }

 private:
  sigset_t set_{};
  void (*pipe_handler_)(int) = SIG_DFL;  ///< Of SIGPIPE, before hfrun ignored it.
  hfcomm::rendezvous::unique_fd descriptor_;
};

}  // namespace hfrun
