// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace hfcomm::engines {

/// Messages of agents beside the data.
enum class control_kind : std::uint8_t {
  closed,        ///< The connection to `machine` has ended. Comes from the channel itself.
  beat,          ///< The machine is there.
  rank_ended,    ///< Ranks have ended, and how. Ranks that have left are told of behind their data instead.
  machine_lost,  ///< A machine cannot be reached, and why.
  proposal,      ///< A rank proposes a record of a loss.
  verdict,       ///< The record that breaks a group, on all machines.
  bye,           ///< The machine has ended its part of the job.
};

struct control_message {
  int machine = 0;  ///< The machine that it comes from.
  control_kind kind = control_kind::beat;
  std::vector<std::byte> bytes{};
};

/// The connections between the agent of the root's machine, number 0, and each other agent. One thread at a time calls.
/// No function waits.
class control_channel {
 public:
  control_channel() = default;
  control_channel(const control_channel&) = delete;
  control_channel& operator=(const control_channel&) = delete;
  virtual ~control_channel() = default;

  /// Sends to `machine`: to any from the root, and only to 0 from the others. Does nothing once that connection has
  /// ended.
  virtual void send(int machine, control_kind kind, std::span<const std::byte> bytes) = 0;

  /// Returns the next message that has come, if there is one.
  [[nodiscard]] virtual std::optional<control_message> receive() = 0;

  /// Ends the connection to `machine`. Nothing comes from it any more, and no `closed` either.
  virtual void close(int machine) = 0;

  /// Returns a descriptor that is readable when `receive` may return something.
  [[nodiscard]] virtual int descriptor() const = 0;
};

}  // namespace hfcomm::engines
