// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <hfcomm/engine/hierarchical/frame.hpp>
#include <hfcomm/engine/links/link.hpp>

namespace hfcomm::engines {

/// The frames that a machine's agent sends. Not thread-safe.
class frame_sender {
 public:
  frame_sender(link& over, int machines) : link_(over), queues_(static_cast<std::size_t>(machines)) {}
  frame_sender(const frame_sender&) = delete;
  frame_sender& operator=(const frame_sender&) = delete;

  /// Sends a frame, and `payload` where it is not empty. Its memory must stay until it has arrived.
  void send(int machine, const frame& what, std::span<const std::byte> payload = {}) {
    if (!is_closed(machine)) {
      start(add(machine, what, payload.size()), machine, payload);
    }
  }

  /// Sends a frame with a payload that is copied.
  void send_copy(int machine, const frame& what, std::span<const std::byte> payload) {
    if (!is_closed(machine)) {
      outgoing& one = add(machine, what, payload.size());
      one.copy.assign(payload.begin(), payload.end());
      start(one, machine, one.copy);
    }
  }

  /// Forgets what has arrived.
  void reap() {
    for (auto& one : queues_) {
      while (!one.sent.empty() && one.sent.front()->is_done()) {
        one.has_failed = one.has_failed || one.sent.front()->has_failed();
        spare_.push_back(std::move(one.sent.front()));
        one.sent.pop_front();
      }
    }
  }

  [[nodiscard]] bool is_idle() const {
    return std::ranges::all_of(queues_, [](const machine_queue& one) { return one.sent.empty(); });
  }

  /// Sends no more to a machine, which is lost or has left.
  void close(int machine) { queues_[static_cast<std::size_t>(machine)].is_closed = true; }
  [[nodiscard]] bool is_closed(int machine) const { return queues_[static_cast<std::size_t>(machine)].is_closed; }
  /// Returns whether something has not arrived there, because its transfer failed.
  [[nodiscard]] bool has_failed(int machine) const { return queues_[static_cast<std::size_t>(machine)].has_failed; }

 private:
  struct outgoing {
    frame head;
    std::vector<std::byte> copy;
    link_transfer head_transfer;
    link_transfer payload_transfer;
    bool has_payload = false;

    [[nodiscard]] bool has_failed() const { return head_transfer.failed || (has_payload && payload_transfer.failed); }
    [[nodiscard]] bool is_done() const { return head_transfer.done && (!has_payload || payload_transfer.done); }
  };
  struct machine_queue {
    std::deque<std::unique_ptr<outgoing>> sent;
    bool is_closed = false;
    bool has_failed = false;
  };

  outgoing& add(int machine, const frame& what, std::size_t payload_bytes) {
    auto& sent = queues_[static_cast<std::size_t>(machine)].sent;
    if (spare_.empty()) {
      sent.push_back(std::make_unique<outgoing>());
    } else {
      sent.push_back(std::move(spare_.back()));
      spare_.pop_back();
    }
    sent.back()->head = what;
    sent.back()->head.bytes = static_cast<std::uint32_t>(payload_bytes);
    return *sent.back();
  }

  void start(outgoing& one, int machine, std::span<const std::byte> payload) {
    begin(one.head_transfer, machine, frame_channel, std::as_bytes(std::span(&one.head, 1)));
    one.has_payload = !payload.empty();
    if (one.has_payload) {
      begin(one.payload_transfer, machine, payload_channel, payload);
    }
  }

  void begin(link_transfer& one, int machine, std::uint32_t channel, std::span<const std::byte> bytes) {
    one.machine = machine;
    one.channel = channel;
    // A link does not write what it sends.
    one.bytes = {const_cast<std::byte*>(bytes.data()), bytes.size()};  // NOLINT(*const-cast*)
    one.sends = true;
    one.failed = false;
    one.done.store(false);
    one.native = nullptr;
    link_.start(one);
  }

  link& link_;
  std::vector<machine_queue> queues_;  // by machine
  std::vector<std::unique_ptr<outgoing>> spare_;
};

}  // namespace hfcomm::engines
