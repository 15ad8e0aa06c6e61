// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <optional>
#include <vector>

#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/core/std_algorithm.hpp>
#include <hfcomm/engine/reduction/copy_bytes.hpp>
#include <hfcomm/engine/shared_memory/messages/message_endpoint.hpp>
#include <hfcomm/engine/shared_memory/messages/message_index.hpp>

namespace hfcomm::engines {

/// The messages that a rank sends. Offers each in an envelope, and passes the bytes of larger ones through the rank's
/// slots: on one machine as much as a slot holds at once, the rest when the receiver has accepted. One slot is kept for
/// messages that were accepted without one, because those in the other slots may be received after them.
///
/// There may be more messages than envelopes. One envelope is kept for each rank, so no receiver waits because of
/// another one; the offer in it is urgent. A receiver that waits for other messages of this rank then notes the offers
/// that it does not want yet, so that their envelopes are free again, and later asks for one of them by its number: an
/// ask is an envelope, too. So a message comes whatever else is pending, and memory is the only limit.
///
/// Not thread-safe.
class outbox {
 public:
  explicit outbox(message_endpoint& endpoint)
      : endpoint_(endpoint), lanes_(static_cast<std::size_t>(endpoint.size())) {}

  [[nodiscard]] message_list& entries() noexcept { return entries_; }

  /// Adds messages, in this order.
  void add(message_list& fresh) {
    for (auto one = fresh.begin(); one != fresh.end(); ++one) {
      one->offer = one->number;
      lane_of(one->request->call.root).waiting.add({.message = one});
      ++waiting_;
    }
    entries_.splice(entries_.end(), fresh);
  }

  /// Asks a rank for a message that this one has noted.
  void ask(int sender, std::uint64_t number) {
    lane_of(sender).asks.push_back(number);
    ++waiting_;
  }

  /// Returns whether a rank has noted messages of this one.
  [[nodiscard]] bool is_noted_by(int receiver) const noexcept { return noted_.has_of(receiver); }

  /// Offers a message again: its receiver has noted it, and asks for it. Returns false where the answer that it is
  /// noted has not come yet, as it may from another machine.
  [[nodiscard]] bool offer_again(int receiver, std::uint64_t number, finished_transfers& finished) {
    auto found = noted_.find(receiver, number);
    if (!found) {
      process_answers(finished);  // that it is noted, this rank has not seen yet
      found = noted_.find(receiver, number);
    }
    if (found) {
      noted_.remove(*found);
      found->message->is_noted = false;
      found->message->offer |= layout::again_flag;
      lane_of(receiver).asked.add(*found);
      ++waiting_;
    }
    return found.has_value();
  }

  /// Takes the next step of every message; returns whether there was any.
  bool progress(finished_transfers& finished) {
    bool any = free_taken_asks();
    any = process_answers(finished) || any;
    for (int receiver = 0; waiting_ != 0 && receiver < endpoint_.size(); ++receiver) {
      any = offer_to(receiver) || any;
    }
    return any;
  }

  /// Returns the time of the last progress that this message depends on. Until it is accepted, the progress of all
  /// messages to its receiver counts: that may take them first. While it waits for a slot, that of all messages does.
  [[nodiscard]] pending_message::clock::time_point idle_since(const pending_message& message) const noexcept {
    if (!message.streaming) {
      return std::max(message.active, lanes_[static_cast<std::size_t>(message.request->call.root)].active);
    }
    return message.slot < 0 && !message.read ? std::max(message.active, last_progress_) : message.active;
  }

  /// Takes back a message that cannot be delivered any more. After that its bytes may be freed: a receiver that is just
  /// reading them sees that the offer is gone. A sweep removes it.
  void withdraw(pending_message& message, std::exception_ptr problem = nullptr) noexcept {
    if (message.envelope != nullptr) {
      release(message);
    }
    message_endpoint::finish(message, std::move(problem));
  }

  /// Moves the finished messages to `finished`, whatever has finished them.
  void sweep(finished_transfers& finished) {
    const auto is_finished = [](const pending_message& one) { return one.request->finished.load(); };
    std::erase_if(offered_, [&](message_list::iterator one) { return is_finished(*one); });
    for (lane& one : lanes_) {
      waiting_ -= one.waiting.remove_if(is_finished) + one.asked.remove_if(is_finished);
    }
    for (const pending_message& one : entries_) {
      if (one.is_noted && is_finished(one)) {
        noted_.remove(one.request->call.root, one.number, one);
      }
    }
    endpoint_.sweep(entries_, finished);
  }

 private:
  /// The asks and messages that wait for one rank.
  struct lane {
    std::vector<std::uint64_t> asks;              // numbers of its messages, which this rank wants now
    message_queue asked;                          // that it has noted, and wants now
    message_queue waiting;                        // that were not offered yet
    bool reads = false;                           // it has read the last long message in this rank's memory
    layout::envelope* kept = nullptr;             // the envelope that is kept for this rank, while it is in use
    pending_message::clock::time_point active{};  // when a message last got an envelope, or an answer
  };
  /// An envelope that asks for a message.
  struct sent_ask {
    layout::envelope* envelope = nullptr;
    std::uint64_t number = 0;
    int receiver = 0;
  };

  [[nodiscard]] lane& lane_of(int rank) { return lanes_[static_cast<std::size_t>(rank)]; }

  /// Offers a rank what waits for an envelope; returns whether anything was offered.
  bool offer_to(int receiver) {
    lane& one = lane_of(receiver);
    bool any = false;
    while (!one.asks.empty() || !one.asked.is_empty() || !one.waiting.is_empty()) {
      layout::envelope* const envelope = take_envelope(receiver);
      if (envelope == nullptr) {
        break;
      }
      if (!one.asks.empty()) {
        send_ask(receiver, *envelope);
      } else {
        const auto message = (one.asked.is_empty() ? one.waiting : one.asked).take_first();
        message->envelope = envelope;
        offer(*message);
        offered_.push_back(message);
        message->active = endpoint_.now();
        one.active = message->active;
      }
      --waiting_;
      any = true;
    }
    return any;
  }

  /// Returns a free envelope for a rank; null where there is none but those that are kept for other ranks.
  [[nodiscard]] layout::envelope* take_envelope(int receiver) {
    lane& one = lane_of(receiver);
    const bool is_kept = !may_share();
    if (is_kept && one.kept != nullptr) {
      return nullptr;
    }
    const auto all = endpoint_.memory().envelopes(endpoint_.rank());
    const auto free = std::find_if(all.begin(), all.end(), [](const layout::envelope& candidate) {
      return candidate.offer.load(std::memory_order_relaxed) == 0;
    });
    if (is_kept) {
      one.kept = &*free;
      ++kept_in_use_;
    }
    ++used_envelopes_;
    layout::mailbox& box = endpoint_.box();
    const auto used = static_cast<std::uint32_t>(free - all.begin()) + 1;
    if (used > box.in_use.load(std::memory_order_relaxed)) {
      box.in_use.store(used);
    }
    return &*free;
  }

  /// Returns whether more envelopes are free than are kept.
  [[nodiscard]] bool may_share() const noexcept {
    const std::size_t free = endpoint_.memory().sizes().envelopes() - used_envelopes_;
    return free > lanes_.size() - kept_in_use_;
  }

  void free_envelope(layout::envelope& envelope, int receiver) noexcept {
    envelope.offer.store(0);
    lane& one = lane_of(receiver);
    if (one.kept == &envelope) {
      one.kept = nullptr;
      --kept_in_use_;
    }
    --used_envelopes_;
  }

  /// Puts an envelope on its way.
  void publish(layout::envelope& envelope, int receiver, std::uint64_t number, bool is_urgent) {
    envelope.is_urgent.store(is_urgent ? 1 : 0, std::memory_order_relaxed);
    envelope.offer.store(number, std::memory_order_release);
    if (is_urgent) {
      endpoint_.memory().mailbox(receiver).urgent_offers.fetch_add(1);
    }
    announce(envelope, receiver);
  }

  void send_ask(int receiver, layout::envelope& envelope) {
    lane& one = lane_of(receiver);
    const std::uint64_t number = ++last_ask_ | layout::ask_flag;
    envelope.destination.store(receiver, std::memory_order_release);
    envelope.tag.store(one.asks.front(), std::memory_order_relaxed);
    one.asks.erase(one.asks.begin());
    envelope.filled.store(0, std::memory_order_relaxed);
    asks_.push_back({&envelope, number, receiver});
    publish(envelope, receiver, number, true);
  }

  /// Frees the envelopes of asks that have been taken; returns whether there were any.
  bool free_taken_asks() {
    return std::erase_if(asks_, [this](const sent_ask& one) {
             const bool is_taken = one.envelope->answer.load() / layout::answer_kinds == one.number;
             if (is_taken) {
               free_envelope(*one.envelope, one.receiver);
             }
             return is_taken;
           }) != 0;
  }

  /// Writes the message into its envelope.
  void offer(pending_message& message) {
    __builtin_prefetch(&endpoint_.memory().mailbox(message.request->call.root).epoch, 1);
    layout::envelope* const envelope = message.envelope;
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
    if (data.size() > sizeof(envelope->payload)) {
      const auto address = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(data.data()));
      std::memcpy(envelope->payload, &address, sizeof(address));
    } else if (!data.empty()) {
      std::memcpy(envelope->payload, data.data(), data.size());
    }
    // Not to other machines: an answer may come, and free the slot, while the bytes are still on their way.
    const bool is_ahead = data.size() > sizeof(envelope->payload) && endpoint_.health().is_on_this_machine(call.root) &&
                          !(lane_of(call.root).reads && data.size() >= least_read_bytes) &&
                          take_slot(message, reserved_slots);
    if (is_ahead) {
      fill_slot(message);
    }
    publish(*envelope, call.root, message.offer, envelope == lane_of(call.root).kept);
    while (is_ahead && fill_slot(message)) {
      announce(*envelope, call.root);
    }
  }

  /// Acts on the receivers' answers; returns whether there were any, or bytes have moved.
  bool process_answers(finished_transfers& finished) {
    bool any = false;
    std::erase_if(offered_, [&](message_list::iterator one) {
      if (!process_answer(one)) {
        return false;
      }
      any = true;
      one->active = endpoint_.now();
      last_progress_ = one->active;
      lane_of(one->request->call.root).active = one->active;
      if (one->envelope != nullptr) {
        return false;
      }
      if (one->request->finished.load()) {
        finished.push_back(one->request);
        entries_.erase(one);
      }
      return true;
    });
    return any;
  }

  /// Acts on the receiver's answer; returns whether there was one, or bytes have moved.
  bool process_answer(message_list::iterator one) {
    pending_message& message = *one;
    const std::uint64_t reply = message.envelope->answer.load();
    if (reply / layout::answer_kinds != message.offer) {
      return false;
    }
    const int receiver = message.request->call.root;
    std::exception_ptr problem;
    switch (static_cast<message_answer>(reply % layout::answer_kinds)) {
      case message_answer::accepted: message.read.reset(); return send_more(message);
      case message_answer::reads: {
        const auto before = std::exchange(message.read, message.envelope->drained.load());
        message.streaming = true;
        return message.read != before;
      }
      case message_answer::noted:
        release(message);
        message.moved = 0;
        message.is_noted = true;
        noted_.add({one, receiver, message.number});
        return true;
      case message_answer::has_read: lane_of(receiver).reads = true; break;
      case message_answer::taken:
        lane_of(receiver).reads = lane_of(receiver).reads && message.request->data.size() < least_read_bytes;
        break;
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
    announce(*message.envelope, message.request->call.root);
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
    std::byte* const to = endpoint_.memory().message_slot(endpoint_.rank(), static_cast<std::uint32_t>(message.slot)) +
                          message.moved % ring;
    const std::byte* const from = message.request->data.data() + message.moved;
    // The receiver of the last message still has the slot's lines. The instruction takes some time to begin.
    if (count >= least_by_instruction) {
      detail::copy_by_instruction(to, from, count);
    } else {
      detail::copy_bytes(to, from, count);
    }
    message.moved += count;
    message.envelope->filled.store(message.moved);
    return true;
  }

  /// Tells the receiver that the envelope has changed.
  void announce(const layout::envelope& envelope, int receiver) const noexcept {
    endpoint_.memory().notify(receiver);
    endpoint_.memory().note_envelope(endpoint_.rank(), envelope);
  }

  /// Frees the message's envelope and slot.
  void release(pending_message& message) noexcept {
    if (message.slot >= 0) {
      slots_used_[static_cast<std::size_t>(message.slot)] = false;
      message.slot = -1;
    }
    free_envelope(*message.envelope, message.request->call.root);
    message.envelope = nullptr;
  }

  static constexpr std::ptrdiff_t reserved_slots = 1;  // for accepted messages
  static constexpr std::uint64_t least_by_instruction = 2048;

  message_endpoint& endpoint_;
  message_list entries_;
  std::vector<lane> lanes_;                      // by receiver
  std::vector<message_list::iterator> offered_;  // entries that have an envelope, in the order of their offers
  message_index noted_;                          // entries that their receiver has noted, by it and their number
  std::vector<sent_ask> asks_;                   // that have not been taken
  std::uint64_t last_ask_ = 0;                   // the last one's number, without the flag
  std::size_t waiting_ = 0;                      // messages and asks in lanes
  std::size_t used_envelopes_ = 0;
  std::size_t kept_in_use_ = 0;  // of the envelopes that are kept for one rank each
  std::array<bool, layout::message_slot_count> slots_used_{};
  pending_message::clock::time_point last_progress_{};  // when an offered message last moved
};

}  // namespace hfcomm::engines
