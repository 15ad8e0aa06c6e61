// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstddef>
#include <deque>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <hfcomm/engine/hierarchical/frame.hpp>
#include <hfcomm/engine/links/link.hpp>

namespace hfcomm::engines {

/// Takes the frames that come to a machine's agent.
class frame_target {
 public:
  /// Returns where the payload of a frame goes: `what.bytes` bytes; empty where it is to be kept until `apply`.
  [[nodiscard]] virtual std::span<std::byte> place_for(int machine, const frame& what) = 0;
  /// Takes a frame, in the order in which the machine sent it. `payload` is where its payload is.
  virtual void apply(int machine, const frame& what, std::span<const std::byte> payload) = 0;

 protected:
  ~frame_target() = default;
};

/// The frames that come from one machine. Several receives are posted ahead, and payloads go straight to their places.
/// Not thread-safe.
class frame_receiver {
 public:
  frame_receiver(link& over, int machine) : link_(over), machine_(machine) {
    for (auto& one : posted_) {
      post(one);
    }
  }
  frame_receiver(const frame_receiver&) = delete;
  frame_receiver& operator=(const frame_receiver&) = delete;

  /// Takes what has come. Returns whether there was anything.
  bool progress(frame_target& target) {
    bool any = false;
    while (!has_failed_ && taken_.size() < most_taken && posted_[next_].transfer.done.load(std::memory_order_acquire)) {
      any = true;
      incoming& one = posted_[next_];
      if (one.transfer.failed) {
        has_failed_ = true;
        break;
      }
      next_ = (next_ + 1) % posted_.size();
      take(one.head, target);
      post(one);
    }
    while (!taken_.empty() && (taken_.front()->head.bytes == 0 || taken_.front()->payload.done)) {
      any = true;
      const auto one = std::move(taken_.front());
      taken_.pop_front();
      if (one->head.bytes != 0 && one->payload.failed) {
        has_failed_ = true;
        break;
      }
      target.apply(machine_, one->head, one->payload.bytes);
    }
    return any;
  }

  /// Returns whether no payload is under way.
  [[nodiscard]] bool is_idle() const noexcept { return taken_.empty(); }

  /// Returns whether nothing more will come, because a transfer has failed.
  [[nodiscard]] bool has_failed() const noexcept { return has_failed_; }

 private:
  static constexpr std::size_t most_taken = 256;  // frames whose payloads are under way
  static constexpr std::size_t most_payload = 1 << 21;

  struct incoming {
    frame head;
    link_transfer transfer;
  };
  struct taken {
    frame head;
    link_transfer payload;
    std::vector<std::byte> copy;
  };

  void post(incoming& one) {
    one.transfer.machine = machine_;
    one.transfer.channel = frame_channel;
    one.transfer.bytes = std::as_writable_bytes(std::span(&one.head, 1));
    one.transfer.done.store(false);
    one.transfer.native = nullptr;
    link_.start(one.transfer);
  }

  void take(const frame& head, frame_target& target) {
    auto one = std::make_unique<taken>();
    one->head = head;
    if (head.bytes > most_payload) {
      has_failed_ = true;  // no agent sends that
      return;
    }
    if (head.bytes != 0) {
      one->payload.machine = machine_;
      one->payload.channel = payload_channel;
      one->payload.bytes = target.place_for(machine_, head);
      if (one->payload.bytes.empty()) {
        one->copy.resize(head.bytes);
        one->payload.bytes = one->copy;
      }
      link_.start(one->payload);
    }
    taken_.push_back(std::move(one));
  }

  link& link_;
  int machine_;
  std::array<incoming, 16> posted_;
  std::size_t next_ = 0;
  std::deque<std::unique_ptr<taken>> taken_;
  bool has_failed_ = false;
};

}  // namespace hfcomm::engines
