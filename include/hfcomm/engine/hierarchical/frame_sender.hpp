// SPDX-License-Identifier: MIT
#pragma once

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
  void send(int machine, frame what, std::span<const std::byte> payload = {}) {
    if (is_closed(machine)) {
      return;
    }
    what.bytes = static_cast<std::uint32_t>(payload.size());
    start(machine, take(what), payload);
  }

  /// Sends a frame with a payload that is copied.
  void send_copy(int machine, frame what, std::span<const std::byte> payload) {
    if (is_closed(machine)) {
      return;
    }
    what.bytes = static_cast<std::uint32_t>(payload.size());
    auto one = take(what);
    one->copy.assign(payload.begin(), payload.end());
    const std::span<const std::byte> copy = one->copy;
    start(machine, std::move(one), copy);
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
    for (const auto& one : queues_) {
      if (!one.sent.empty()) {
        return false;
      }
    }
    return true;
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

  std::unique_ptr<outgoing> take(const frame& what) {
    std::unique_ptr<outgoing> one;
    if (spare_.empty()) {
      one = std::make_unique<outgoing>();
    } else {
      one = std::move(spare_.back());
      spare_.pop_back();
    }
    one->head = what;
    return one;
  }

  void start(int machine, std::unique_ptr<outgoing> one, std::span<const std::byte> payload) {
    auto& sent = queues_[static_cast<std::size_t>(machine)].sent;
    sent.push_back(std::move(one));
    outgoing& mine = *sent.back();
    begin(mine.head_transfer, machine, frame_channel, std::as_bytes(std::span(&mine.head, 1)));
    mine.has_payload = !payload.empty();
    if (mine.has_payload) {
      begin(mine.payload_transfer, machine, payload_channel, payload);
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
