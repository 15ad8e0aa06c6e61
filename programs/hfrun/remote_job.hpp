// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <deque>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <poll.h>

#include "failure.hpp"
#include "job_part.hpp"
#include "remote_hosts.hpp"
#include "signals.hpp"

namespace hfrun {

/// A job on other machines.
class remote_job {
 public:
  /// Starts the remote shells.
  remote_job(const std::vector<job_part>& parts, const std::vector<std::string>& remote_shell,
             const forwarded_signals& signals)
      : signals_(signals) {
    const std::string own_path = std::filesystem::read_symlink("/proc/self/exe").string();
    for (const job_part& part : parts) {
      hosts_.emplace_back(part, remote_shell, own_path, signals);
    }
    signals.unblock();
  }

  /// Waits until the job has ended; returns the status.
  int run() {
    while (update_hosts()) {
      pass_signal_on();
      end_unreached_hosts();
      stop_after_failure();
      if (stopped_ && clock::now() - *stopped_ > answer_time) {
        for (remote_host& host : hosts_) {
          host.kill();
        }
        break;
      }
    }
    if (failures_.empty()) {
      return 0;
    }
    print(first_of(failures_));
    return first_of(failures_).status;
  }

 private:
  using clock = std::chrono::steady_clock;

  struct passed_signal {
    int number = 0;
    clock::time_point at{};
  };

  /// How long a host that has been told to stop its ranks may take.
  static constexpr auto answer_time = std::chrono::seconds(5);
  /// Signals that follow each other more quickly are one: `timeout` sends its signal to hfrun, and to all of its group.
  static constexpr auto shortest_pause = std::chrono::milliseconds(100);
  /// A signal that comes later is not the second attempt to end the job, but a new one.
  static constexpr auto longest_pause = std::chrono::seconds(10);

  /// Waits up to 20 ms for the hosts and moves their bytes. Returns whether a remote shell still runs.
  bool update_hosts() {
    std::vector<pollfd> events;
    for (const remote_host& host : hosts_) {
      for (const pollfd& event : host.events()) {
        events.push_back(event);
      }
    }
    ::poll(events.data(), events.size(), 20);
    bool running = false;
    for (std::size_t index = 0; index < hosts_.size(); ++index) {
      const auto own = std::span(events).subspan(index * remote_host::pipes).first<remote_host::pipes>();
      running = hosts_[index].update(own, failures_) || running;
    }
    std::fflush(stdout);
    return running;
  }

  /// Sends the ranks a signal that has come. A second one stops them.
  void pass_signal_on() {
    const auto received = signals_.take();
    if (!received) {
      return;
    }
    const auto now = clock::now();
    const bool is_new = !passed_ || now - passed_->at > longest_pause;
    if (received->is_ending() && !is_new && now - passed_->at > shortest_pause) {
      stop_for(received->signal);
      return;
    }
    for (remote_host& host : hosts_) {
      host.signal(received->signal);
    }
    if (received->is_ending() && is_new) {
      passed_ = {received->signal, now};
    }
  }

  void stop_for(int signal) {
    for (remote_host& host : hosts_) {
      if (host.is_active()) {
        failures_.push_back(host.stop_for(signal));
      }
    }
    stopped_ = stopped_ ? stopped_ : clock::now();
  }

  /// Ends the remote shells that have not passed on a signal within the grace, because they have not reached their
  /// host.
  void end_unreached_hosts() {
    if (!passed_ || clock::now() - passed_->at <= grace) {
      return;
    }
    for (remote_host& host : hosts_) {
      if (host.is_active() && !host.is_reached()) {
        failures_.push_back(host.stop_for(passed_->number));
      }
    }
  }

  void stop_after_failure() {
    if (failures_.empty() || stopped_ || clock::now() - failures_.front().at <= grace) {
      return;
    }
    for (remote_host& host : hosts_) {
      host.close();
    }
    stopped_ = clock::now();
  }

  const forwarded_signals& signals_;
  std::deque<remote_host> hosts_;
  std::vector<failure> failures_;
  std::optional<passed_signal> passed_;
  std::optional<clock::time_point> stopped_;
};

}  // namespace hfrun
