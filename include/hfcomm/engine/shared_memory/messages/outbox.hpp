// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>

#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/core/std_algorithm.hpp>
#include <hfcomm/engine/reduction/copy_bytes.hpp>
#include <hfcomm/engine/shared_memory/messages/message_endpoint.hpp>

namespace hfcomm::engines {

/// The messages that a rank sends. Offers each in an envelope, and passes the bytes of larger ones through the rank's
/// slots: on one machine as much as a slot holds at once, the rest when the receiver has accepted. One slot is kept for
/// messages that were accepted without one, because those in the other slots may be received after them. Not
/// thread-safe.
class outbox {
 public:
  explicit outbox(message_endpoint& endpoint) : endpoint_(endpoint) {}

  [[nodiscard]] message_list& entries() noexcept { return entries_; }

  /// Takes the next step of every message; returns whether there was any.
  bool progress(finished_transfers& finished) {
    bool any = false;
    for (pending_message& message : entries_) {
      const bool offered = message.envelope != nullptr;
      const bool moved = offered ? process_answer(message) : offer(message);
      if (moved) {
        any = true;
        message.active = endpoint_.now();
        (offered ? last_progress_ : last_offer_) = message.active;
      } else if (!offered) {
        break;  // offers are in order: none may overtake one that has found no envelope
      }
    }
    // Offers are in order, so those that may be finished come first.
    for (auto one = entries_.begin(); any && one != entries_.end() && one->envelope != nullptr;) {
      if (one->request->finished.load()) {
        finished.push_back(one->request);
        one = entries_.erase(one);
      } else {
        ++one;
      }
    }
    return any;
  }

  /// Returns the time of the last progress that this message depends on. While it waits for an envelope or a slot, the
  /// progress of earlier messages counts.
  [[nodiscard]] pending_message::clock::time_point idle_since(const pending_message& message) const noexcept {
    return message.envelope == nullptr             ? std::max(message.active, last_offer_)
           : message.streaming && message.slot < 0 ? std::max(message.active, last_progress_)
                                                   : message.active;
  }

  /// Takes back a message whose peer is gone and that nobody waits for.
  void withdraw(pending_message& message) noexcept {
    if (message.envelope != nullptr) {
      release(message);
    }
    message_endpoint::finish(message);
  }

 private:
  /// Writes the message into a free envelope; returns false where none is free.
  bool offer(pending_message& message) {
    layout::mailbox& box = endpoint_.box();
    auto* const end = box.outgoing + layout::envelope_count;
    auto* const envelope = std::find_if(box.outgoing, end, [](const layout::envelope& candidate) {
      return candidate.offer.load(std::memory_order_relaxed) == 0;
    });
    if (envelope == end) {
      return false;
    }
    const operation& call = message.request->call;
    const auto data = message.request->data;
    // Release: a rank may still read an earlier message in this envelope, which was not its own. Where it sees the
    // destination of the new one, it must also see that the earlier one is gone.
    envelope->destination.store(call.root, std::memory_order_release);
    envelope->tag.store(call.tag, std::memory_order_relaxed);
    envelope->site.store(endpoint_.site_of(call), std::memory_order_relaxed);
    envelope->fit.store(message_endpoint::fit(call), std::memory_order_relaxed);
    envelope->what.store(pack_call(call, message.request->is_failure), std::memory_order_relaxed);
    envelope->bytes.store(call.bytes, std::memory_order_relaxed);
    envelope->filled.store(0, std::memory_order_relaxed);
    if (!data.empty() && data.size() <= sizeof(envelope->payload)) {
      std::memcpy(envelope->payload, data.data(), data.size());
    }
    message.envelope = envelope;
    // Not to other machines: an answer may come, and free the slot, while the bytes are still on their way.
    const bool is_ahead = data.size() > sizeof(envelope->payload) && endpoint_.health().is_on_this_machine(call.root) &&
                          take_slot(message, reserved_slots);
    if (is_ahead) {
      fill_slot(message);
    }
    envelope->offer.store(message.number);
    const auto used = static_cast<std::uint32_t>(envelope - box.outgoing) + 1;
    if (used > box.in_use.load(std::memory_order_relaxed)) {
      box.in_use.store(used);
    }
    announce(message);
    while (is_ahead && fill_slot(message)) {
      announce(message);
    }
    return true;
  }

  /// Acts on the receiver's answer; returns whether there was one, or bytes have moved.
  bool process_answer(pending_message& message) {
    const std::uint64_t reply = message.envelope->answer.load();
    if (reply / 4 != message.number) {
      return false;
    }
    const int receiver = message.request->call.root;
    std::exception_ptr problem;
    switch (static_cast<message_answer>(reply % 4)) {
      case message_answer::accepted: return send_more(message);
      case message_answer::taken: break;
      case message_answer::refused:
        problem = endpoint_.mismatch(message, endpoint_.rank(), receiver, *message.envelope);
        break;
      case message_answer::failed:
        problem =
            std::make_exception_ptr(peer_error(endpoint_.context(message),
                                               detail::concat({endpoint_.health().who(receiver), " failed in ",
                                                               endpoint_.receiver_text_of(receiver, *message.envelope),
                                                               ": ", endpoint_.reason_of(*message.envelope)}),
                                               receiver, false));
        break;
    }
    release(message);
    message_endpoint::finish(message, std::move(problem));
    return true;
  }

  /// Passes on more of a message that the receiver has accepted. Returns whether bytes have moved.
  bool send_more(pending_message& message) {
    message.streaming = true;
    if (!take_slot(message, 0) || !fill_slot(message)) {
      return false;
    }
    announce(message);
    return true;
  }

  /// Gives the message a slot, and leaves `kept` free ones. Returns whether it has one.
  bool take_slot(pending_message& message, std::ptrdiff_t kept) {
    if (message.slot < 0 && std::count(slots_used_.begin(), slots_used_.end(), false) > kept) {
      const auto free = std::find(slots_used_.begin(), slots_used_.end(), false);
      *free = true;
      message.slot = static_cast<int>(free - slots_used_.begin());
      message.envelope->slot.store(static_cast<std::uint32_t>(message.slot));
    }
    return message.slot >= 0;
  }

  /// Copies the next bytes into the message's slot. Returns false where it has no room.
  bool fill_slot(pending_message& message) {
    const std::uint64_t ring = endpoint_.memory().sizes().message_slot_bytes;
    const std::uint64_t left = message.request->data.size() - message.moved;
    // Until the receiver has accepted, the count of what it has taken is that of an earlier message.
    const std::uint64_t drained = message.streaming ? message.envelope->drained.load() : 0;
    const std::uint64_t room = ring - (message.moved - drained);
    // A quarter at a time, so that both sides copy at once.
    const std::uint64_t count = std::min(left, ring / 4);
    if (count == 0 || room < count) {
      return false;
    }
    detail::copy_bytes(endpoint_.memory().message_slot(endpoint_.rank(), static_cast<std::uint32_t>(message.slot)) +
                           message.moved % ring,
                       message.request->data.data() + message.moved, count);
    message.moved += count;
    message.envelope->filled.store(message.moved);
    return true;
  }

  /// Tells the receiver that the envelope has changed.
  void announce(const pending_message& message) const noexcept {
    endpoint_.memory().notify(message.request->call.root);
    endpoint_.memory().note_envelope(endpoint_.rank(), *message.envelope);
  }

  /// Frees the message's envelope and slot.
  void release(pending_message& message) noexcept {
    if (message.slot >= 0) {
      slots_used_[static_cast<std::size_t>(message.slot)] = false;
      message.slot = -1;
    }
    message.envelope->offer.store(0);
  }

  static constexpr std::ptrdiff_t reserved_slots = 1;  // for accepted messages

  message_endpoint& endpoint_;
  message_list entries_;
  std::array<bool, layout::message_slot_count> slots_used_{};
  pending_message::clock::time_point last_offer_{};     // when a message last got an envelope
  pending_message::clock::time_point last_progress_{};  // when an offered message last moved
};

}  // namespace hfcomm::engines
