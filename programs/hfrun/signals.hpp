// SPDX-License-Identifier: MIT
#pragma once

#include <optional>

#include <sys/signalfd.h>
#include <unistd.h>
#include <csignal>

#include <hfcomm/machine/shared_segment.hpp>

namespace hfrun {

/// The signals that end a program. While this is there they are kept for take(), instead of ending hfrun.
class forwarded_signals {
 public:
  struct received {
    int signal = 0;
    bool from_terminal = false;  ///< Then the children have got it, too.
  };

  forwarded_signals() {
    ::sigemptyset(&set_);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
      ::sigaddset(&set_, signal);
    }
    ::sigprocmask(SIG_BLOCK, &set_, &before_);
    descriptor_ = hfcomm::rendezvous::unique_fd(::signalfd(-1, &set_, SFD_NONBLOCK | SFD_CLOEXEC));
    // A reader that is gone is noticed by the write.
    ::signal(SIGPIPE, SIG_IGN);
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

  /// Gives a child the signals back, as programs expect them.
  void restore_in_child() const {
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) {
      ::signal(signal, SIG_DFL);
    }
    ::sigprocmask(SIG_UNBLOCK, &set_, nullptr);
  }

 private:
  sigset_t set_{};
  sigset_t before_{};
  hfcomm::rendezvous::unique_fd descriptor_;
};

}  // namespace hfrun
