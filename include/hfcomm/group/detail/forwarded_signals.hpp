// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <cstddef>
#include <iterator>
#include <optional>

#include <pthread.h>
#include <csignal>

namespace hfcomm::detail {

/// Keeps the signals that a job's parent gets, so that it can pass them on to the ranks, while this object is there.
/// Signals that the process ignores stay ignored, as under nohup. There is at most one object in a process.
class forwarded_signals {
 public:
  static constexpr int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2};

  struct received {
    int signal = 0;
    bool from_terminal = false;  ///< Then the children have got it, too.

    /// Returns whether it asks for the end of the job. SIGUSR1 and SIGUSR2 mean what the ranks make of them.
    [[nodiscard]] bool is_ending() const noexcept { return signal != SIGUSR1 && signal != SIGUSR2; }
  };

  /// Blocks the signals until `unblock`, so that no child of a fork misses one or takes it for its parent.
  [[gnu::cold]] forwarded_signals() noexcept {
    ::sigemptyset(&kept_);
    for (std::size_t index = 0; index < count; ++index) {
      ::sigaction(signals[index], nullptr, &before_[index]);
      if (before_[index].sa_handler != SIG_IGN) {
        ::sigaddset(&kept_, signals[index]);
      }
      counts()[index][0].store(0);
      counts()[index][1].store(0);
    }
    ::pthread_sigmask(SIG_BLOCK, &kept_, &mask_);
    struct sigaction noting{};
    noting.sa_sigaction = &note;
    noting.sa_flags = SA_SIGINFO | SA_RESTART;
    for (const int signal : signals) {
      if (::sigismember(&kept_, signal) == 1) {
        ::sigaction(signal, &noting, nullptr);
      }
    }
  }
  forwarded_signals(const forwarded_signals&) = delete;
  forwarded_signals& operator=(const forwarded_signals&) = delete;
  /// Raises the signals that came too late to be taken.
  ~forwarded_signals() {
    restore();
    while (const auto late = take()) {
      ::raise(late->signal);
    }
  }

  void unblock() const noexcept { ::pthread_sigmask(SIG_UNBLOCK, &kept_, nullptr); }

  /// Gives the process, or a child of it, its handlers and its mask back.
  [[gnu::cold]] void restore() const noexcept {
    for (std::size_t index = 0; index < count; ++index) {
      ::sigaction(signals[index], &before_[index], nullptr);
    }
    ::pthread_sigmask(SIG_SETMASK, &mask_, nullptr);
  }

  /// Returns a signal that has come; nullopt: there is none. Never waits.
  [[nodiscard, gnu::cold]] std::optional<received> take() const noexcept {  // NOLINT(*static*): of the object's time
    for (std::size_t index = 0; index < count; ++index) {
      for (const bool from_terminal : {false, true}) {
        if (auto& came = counts()[index][from_terminal ? 1 : 0]; came.load() > 0) {
          came.fetch_sub(1);
          return received{signals[index], from_terminal};
        }
      }
    }
    return std::nullopt;
  }

 private:
  static constexpr std::size_t count = std::size(signals);

  /// How often each has come, from other processes and from the terminal.
  static std::atomic<int> (&counts() noexcept)[count][2] {
    static std::atomic<int> came[count][2] = {};
    return came;
  }

  static void note(int signal, siginfo_t* info, void* /*context*/) {
    for (std::size_t index = 0; index < count; ++index) {
      if (signals[index] == signal) {
        counts()[index][info->si_code == SI_KERNEL ? 1 : 0].fetch_add(1);
      }
    }
  }

  struct sigaction before_[count]{};
  sigset_t kept_{};  // those that the process does not ignore
  sigset_t mask_{};
};

}  // namespace hfcomm::detail
