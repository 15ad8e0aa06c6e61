// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/engine/call_text.hpp>
#include <hfcomm/engine/hierarchical/control_channel.hpp>
#include <hfcomm/engine/hierarchical/records.hpp>
#include <hfcomm/machine/roster.hpp>
#include <hfcomm/machine/waiting.hpp>
#include <hfcomm/serialization/encoding.hpp>
#include <hfcomm/serialization/std_types.hpp>

namespace hfcomm::engines {

/// An agent's knowledge of which ranks and machines of the job are there. Each agent says how the ranks of its machine
/// end, and beats. The root, machine 0, decides which machines are lost, and which record breaks a group: the first
/// that was proposed. Everyone else decides only that the root is lost. Not thread-safe.
class job_liveness {
 public:
  struct news {
    bool someone_ended = false;
    std::optional<loss_record> verdict{};
  };

  /// `machine_of` has the machine of each rank, `leaders` the rank of each machine whose process connects it.
  job_liveness(std::shared_ptr<rendezvous::roster> roster, std::vector<int> machine_of, std::vector<int> leaders,
               int self, control_channel& control, std::chrono::milliseconds silence_limit)
      : roster_(std::move(roster)),
        machine_of_(std::move(machine_of)),
        leaders_(std::move(leaders)),
        self_(self),
        control_(control),
        silence_limit_(silence_limit),
        beat_interval_(std::clamp(silence_limit / 10, std::chrono::milliseconds(20), std::chrono::milliseconds(500))),
        is_reported_(machine_of_.size()),
        machines_(1 + static_cast<std::size_t>(*std::max_element(machine_of_.begin(), machine_of_.end()))) {}

  [[nodiscard]] bool is_root() const noexcept { return self_ == 0; }
  [[nodiscard]] bool is_lost(int machine) const { return machines_[static_cast<std::size_t>(machine)].is_lost; }

  [[nodiscard]] bool local_ranks_have_ended() const {
    for (std::size_t rank = 0; rank < machine_of_.size(); ++rank) {
      if (machine_of_[rank] == self_ && !is_reported_[rank]) {
        return false;
      }
    }
    return true;
  }

  /// Returns whether nobody needs this agent any more. The root stays until all others have left, because it decides.
  [[nodiscard]] bool may_leave() {
    if (!std::exchange(has_said_bye_, true) && !is_root()) {
      control_.send(0, control_kind::bye, {});
    }
    return !is_root() || std::all_of(machines_.begin() + 1, machines_.end(),
                                     [](const machine_state& other) { return other.is_lost || other.has_left; });
  }

  /// Beats, and looks at this machine's ranks and the others' silence. Returns whether somebody has ended.
  bool tick() {
    bool any = false;
    beat();
    for (std::size_t rank = 0; rank < machine_of_.size(); ++rank) {
      if (machine_of_[rank] == self_ && !is_reported_[rank]) {
        any = report_if_ended(static_cast<int>(rank)) || any;
      }
    }
    tell_endings();
    for (int other = 0; other < static_cast<int>(machines_.size()); ++other) {
      machine_state& theirs = machines_[static_cast<std::size_t>(other)];
      if (other == self_ || theirs.is_lost || theirs.has_left || (!is_root() && other != 0)) {
        continue;
      }
      const auto total = theirs.running.update();
      theirs.silence += total - std::exchange(theirs.counted, total);
      if (theirs.silence >= silence_limit_) {
        lose(other, detail::concat({"has been silent for ", format_duration(silence_limit_)}));
        any = true;
      }
    }
    return any;
  }

  /// Returns the ranks of this machine that have left the job since the last call. The agent tells of them behind their
  /// data: over the side channel, the news would overtake what they had sent last, and others would miss it.
  [[nodiscard]] std::vector<int> take_left_ranks() { return std::exchange(left_ranks_, {}); }

  /// Takes the news that a rank of another machine has left the job.
  void take_left(int machine, int rank) {
    if (rank >= 0 && rank < static_cast<int>(machine_of_.size()) &&
        machine_of_[static_cast<std::size_t>(rank)] == machine) {
      roster_->end_remote(rank, {rendezvous::rank_ending::kind::left, {}});
    }
  }

  /// Returns whether others need to hear of a message that was taken before the next tick.
  [[nodiscard]] bool has_urgent_news() const noexcept { return is_urgent_; }

  /// Tells the other machines how ranks have ended. At the end of a large job all ranks do, and a message to each
  /// machine about each rank would cost the root seconds; so a tick's are one message.
  void tell_endings() {
    if (!endings_.empty()) {
      tell_all(control_kind::rank_ended, encoded(endings_), self_);
      endings_.clear();
    }
    is_urgent_ = false;
  }

  /// Proposes a record of a loss. Returns the verdict where this agent knows it at once.
  std::optional<loss_record> propose(const loss_record& proposal) {
    if (!is_root() && !is_lost(0)) {
      control_.send(0, control_kind::proposal, encoded(proposal));
      return std::nullopt;
    }
    return decide(proposal);
  }

  /// Tells this machine's ranks that nobody connects them to others any more.
  void end_agent() noexcept { roster_->end_agent(); }

  /// Says that the data of a machine cannot be reached.
  void report_lost(int machine, const std::string& why) {
    if (is_lost(machine) || machines_[static_cast<std::size_t>(machine)].has_left) {
      return;
    }
    std::string& reported = machines_[static_cast<std::size_t>(machine)].reported;
    if (is_root()) {
      lose(machine, why);
    } else if (reported.empty()) {
      // The root loses this machine, and closes its connection, if it is itself the other end.
      reported = why;
      control_.send(0, control_kind::machine_lost, encoded_loss(machine == 0 ? self_ : machine, why));
    }
  }

  /// Acts on a message of another agent.
  news take(const control_message& message) {
    machine_state& theirs = machines_[static_cast<std::size_t>(message.machine)];
    theirs.silence = {};
    try {
      return act(message);
    } catch (const decode_error& problem) {
      lose(message.machine, detail::concat({"sent what is no message: ", problem.detail()}));
      return {.someone_ended = true};
    }
  }

 private:
  struct machine_state {
    bool is_lost = false;
    bool has_left = false;
    std::string reported{};                         // why it was reported to the root as lost; empty: it was not
    detail::running_time running;                   // stands still while this process is stopped
    std::chrono::steady_clock::duration counted{};  // of that time
    std::chrono::steady_clock::duration silence{};
  };
  using ended_rank = std::tuple<int, int, std::string>;  // index, kind, text
  using lost_machine = std::pair<int, std::string>;

  void beat() {
    const auto now = std::chrono::steady_clock::now();
    if (now < next_beat_) {
      return;
    }
    next_beat_ = now + beat_interval_;
    for_each_connected([&](int other) { control_.send(other, control_kind::beat, {}); });
  }

  template <class Visit>
  void for_each_connected(Visit&& visit) {
    for (int other = 0; other < static_cast<int>(machines_.size()); ++other) {
      if (other != self_ && !is_lost(other) && (is_root() || other == 0)) {
        visit(other);
      }
    }
  }

  bool report_if_ended(int rank) {
    auto end = roster_->ending(rank);
    if (!end) {
      return false;
    }
    using kind = rendezvous::rank_ending::kind;
    if (end->how == kind::failed || end->how == kind::failed_because_of_another) {
      end->text = roster_->failure_text_of(rank).value_or(end->text);
    }
    is_reported_[static_cast<std::size_t>(rank)] = true;
    if (end->how == kind::left) {
      left_ranks_.push_back(rank);
    } else {
      endings_.emplace_back(rank, static_cast<int>(end->how), end->text);
    }
    return true;
  }

  /// Sends to all other machines, by way of the root; not to `except`.
  void tell_all(control_kind kind, std::span<const std::byte> bytes, int except) {
    for_each_connected([&](int other) {
      if (other != except) {
        control_.send(other, kind, bytes);
      }
    });
  }

  news act(const control_message& message) {
    switch (message.kind) {
      case control_kind::beat: return {};
      case control_kind::closed: return close(message.machine);
      case control_kind::rank_ended: {
        for (const auto& end : decoded<std::vector<ended_rank>>(message.bytes)) {
          take_ending(end);
        }
        return {.someone_ended = true};
      }
      case control_kind::machine_lost: {
        const auto [machine, why] = decoded<lost_machine>(message.bytes);
        if (machine < 0 || machine >= static_cast<int>(machines_.size())) {
          detail::throw_error<decode_error>({"a machine that the job does not have"});
        }
        if (machine != self_) {
          lose(machine, why);
        }
        return {.someone_ended = true};
      }
      case control_kind::proposal: {
        const auto proposal = decoded_loss(message.bytes);
        return {.someone_ended = false, .verdict = is_root() ? std::optional(decide(proposal)) : std::nullopt};
      }
      case control_kind::verdict: {
        if (message.machine != 0) {
          detail::throw_error<decode_error>({"a verdict of a machine that is not the root's"});
        }
        return {.someone_ended = false, .verdict = decoded_loss(message.bytes)};
      }
      case control_kind::bye: machines_[static_cast<std::size_t>(message.machine)].has_left = true; return {};
    }
    return {};
  }

  void take_ending(const ended_rank& end) {
    using kind = rendezvous::rank_ending::kind;
    const auto& [rank, number, text] = end;
    const auto how = static_cast<kind>(number);
    if (rank < 0 || rank >= static_cast<int>(machine_of_.size()) || number < 0 || how > kind::left) {
      detail::throw_error<decode_error>({"a rank that the job does not have"});
    }
    if (machine_of_[static_cast<std::size_t>(rank)] == self_) {
      return;  // comes back from the root
    }
    roster_->end_remote(rank, {how, text});
    if (is_root()) {
      endings_.push_back(end);
      is_urgent_ = is_urgent_ || how == kind::died || how == kind::failed;  // others may end because of this one
    }
  }

  news close(int other) {
    if (machines_[static_cast<std::size_t>(other)].has_left || (has_said_bye_ && other == 0)) {
      return {};
    }
    lose(other, machines_[static_cast<std::size_t>(other)].reported);
    return {.someone_ended = true};
  }

  /// Records the first proposal for a group as the verdict, and tells all machines.
  loss_record decide(const loss_record& proposal) {
    const auto [found, is_first] = verdicts_.try_emplace(proposal.group, proposal);
    if (is_first) {
      tell_all(control_kind::verdict, encoded(found->second), self_);
    }
    return found->second;
  }

  /// Gives up a machine. Without a reason, the process that connects it has ended.
  void lose(int other, const std::string& why) {
    machine_state& theirs = machines_[static_cast<std::size_t>(other)];
    if (std::exchange(theirs.is_lost, true)) {
      return;
    }
    if (is_root() && !why.empty()) {
      control_.send(other, control_kind::machine_lost,
                    encoded_loss(self_, detail::concat({"has given this one up, which ", why})));
    }
    control_.close(other);
    if (is_root()) {
      tell_all(control_kind::machine_lost, encoded_loss(other, why), other);
    }
    using kind = rendezvous::rank_ending::kind;
    const int leader = leaders_[static_cast<std::size_t>(other)];
    for (int rank = 0; rank < static_cast<int>(machine_of_.size()); ++rank) {
      if (machine_of_[static_cast<std::size_t>(rank)] != other) {
        continue;
      }
      if (!why.empty()) {
        roster_->end_remote(rank, {kind::died, detail::concat({"cannot be reached: its machine ", why})});
      } else if (rank == leader) {
        roster_->end_remote(rank, {kind::died, "ended without a word: its connection was closed"});
      } else {
        roster_->end_remote(rank, {kind::failed_because_of_another,
                                   detail::concat({"rank ", leader, ", which connects its machine, ended"})});
      }
    }
  }

  template <class T>
  [[nodiscard]] static std::vector<std::byte> encoded(const T& value) {
    std::vector<std::byte> bytes;
    encode(value, bytes);
    return bytes;
  }
  [[nodiscard]] static std::vector<std::byte> encoded_loss(int machine, const std::string& why) {
    return encoded(lost_machine(machine, why));
  }
  template <class T>
  [[nodiscard]] static T decoded(std::span<const std::byte> bytes) {
    T value{};
    decode_into(value, bytes);
    return value;
  }
  [[nodiscard]] static loss_record decoded_loss(std::span<const std::byte> bytes) {
    auto record = decoded<loss_record>(bytes);
    std::erase_if(record.missing, [](int rank) { return rank < 0 || rank >= layout::max_ranks; });
    return record;
  }

  std::shared_ptr<rendezvous::roster> roster_;
  std::vector<int> machine_of_;
  std::vector<int> leaders_;
  int self_;
  control_channel& control_;
  std::chrono::milliseconds silence_limit_;
  std::chrono::milliseconds beat_interval_;
  std::chrono::steady_clock::time_point next_beat_{};
  std::vector<bool> is_reported_;  // by rank: how it ended is known to the others, or in endings_
  std::vector<int> left_ranks_;
  std::vector<ended_rank> endings_;
  bool is_urgent_ = false;  // one of endings_ is
  std::vector<machine_state> machines_;
  std::map<std::uint64_t, loss_record> verdicts_;
  bool has_said_bye_ = false;
};

}  // namespace hfcomm::engines
