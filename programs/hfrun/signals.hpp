// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <vector>

#include <csignal>

#include <hfcomm/group/detail/forwarded_signals.hpp>

namespace hfrun {

/// Returns which of the signals that hfrun passes on this process ignores. nohup and a script's `program &` start
/// programs so.
inline std::vector<int> ignored_signals() {
  std::vector<int> ignored;
  for (const int signal : hfcomm::detail::forwarded_signals::signals) {
    struct sigaction current{};
    if (::sigaction(signal, nullptr, &current) == 0 && current.sa_handler == SIG_IGN) {
      ignored.push_back(signal);
    }
  }
  return ignored;
}

/// Makes this process ignore these of the signals that hfrun passes on, and no others.
inline void ignore_only(const std::vector<int>& ignored) {
  for (const int signal : hfcomm::detail::forwarded_signals::signals) {
    const bool is_ignored = std::find(ignored.begin(), ignored.end(), signal) != ignored.end();
    ::signal(signal, is_ignored ? SIG_IGN : SIG_DFL);
  }
}

/// The signals that hfrun passes on to the ranks, and SIGPIPE, which it ignores: a reader that is gone is noticed by
/// the write.
class forwarded_signals : public hfcomm::detail::forwarded_signals {
 public:
  forwarded_signals() : pipe_handler_(::signal(SIGPIPE, SIG_IGN)) {}

  /// Gives a child the signals back, as hfrun has got them.
  void restore_in_child() const {
    ::signal(SIGPIPE, pipe_handler_);
    restore();
  }

 private:
  void (*pipe_handler_)(int);
};

}  // namespace hfrun
