// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/core/std_algorithm.hpp>
#include <hfcomm/engine/reduction/copy_bytes.hpp>
#include <hfcomm/engine/shared_memory/messages/message_endpoint.hpp>
#include <hfcomm/engine/shared_memory/messages/offer_finder.hpp>
#include <hfcomm/engine/shared_memory/messages/sender_memory.hpp>

namespace hfcomm::engines {

/// Answers the offers that a rank's receives are paired with, and takes their bytes: out of the envelope, out of a slot
/// of the sender, or out of its memory. Not thread-safe.
class message_intake {
 public:
  explicit message_intake(message_endpoint& endpoint)
      : endpoint_(endpoint), last_bytes_from_(static_cast<std::size_t>(endpoint.size())) {}

  /// Returns whether the message is the text of its sender's failure.
  [[nodiscard]] static bool carries_failure(const layout::envelope& envelope) noexcept {
    return (envelope.what.load() >> 25 & 1) != 0;
  }

  static void describe_offer(transfer& request, int source, const offer_header& offer) {
    request.source = source;
    request.tag = offer.tag;
    request.bytes = offer.bytes;
  }

  /// Pairs the receive with the offer: refuses it, takes a small message, or asks for the bytes of a larger one.
  void accept(pending_message& message, const found_offer& found) {
    transfer& request = *message.request;
    layout::envelope& envelope = *found.envelope;
    message.envelope = &envelope;
    message.offer = found.number;
    message.peer = found.source;
    message.total = envelope.bytes.load();
    message.carries_failure = carries_failure(envelope);
    message.appends = message.carries_failure || request.call.content == payload::object;
    message.active = endpoint_.now();
    describe_offer(request, found.source, message_endpoint::header_of(envelope));
    if (request.is_failure) {
      if (message.carries_failure) {
        reply(message, message_answer::taken);  // both sides have failed
      } else {
        fail(message, request.object);
      }
      message_endpoint::finish(message);
      return;
    }
    if (!message.carries_failure && (envelope.fit.load() != message_endpoint::fit(request.call) ||
                                     (!message.appends && message.total != request.into.size()))) {
      answer_mismatch(message);
      return;
    }
    const bool is_in_envelope = message.total <= sizeof(envelope.payload);
    try {
      if (message.appends) {
        request.object.clear();
        request.object.reserve(message.total);  // not resize: the bytes are written once
      }
    } catch (const std::exception&) {  // bad_alloc, length_error
      const std::string text =
          detail::concat({"there is no memory for a message of ", message.total, " bytes from rank ", message.peer});
      message_endpoint::finish(message, std::make_exception_ptr(engine_error(endpoint_.context(message), text)));
      fail(message, std::as_bytes(std::span(text)));
      return;
    }
    if (is_in_envelope) {
      take(message, envelope.payload, message.total);
      finish_received(message);
    } else {
      begin_streaming(message);
    }
  }

  /// Copies the next bytes out of the sender's slot or memory; returns false where there are none yet.
  bool take_bytes(pending_message& message) {
    layout::envelope& envelope = *message.envelope;
    const bool reads = message.address != 0;
    if (!(reads ? read_piece(message) : take_from_slot(message))) {
      return reads;
    }
    message.active = endpoint_.now();
    last_bytes_from_[static_cast<std::size_t>(message.peer)] = message.active;
    if (message.moved == message.total) {
      finish_received(message);
      return true;
    }
    envelope.drained.store(message.moved);
    if (!reads) {
      notify_sender(message);
    }
    return true;
  }

  /// Returns when bytes of a rank last came.
  [[nodiscard]] pending_message::clock::time_point last_bytes_from(int rank) const noexcept {
    return last_bytes_from_[static_cast<std::size_t>(rank)];
  }

  /// Writes why this rank fails.
  static void write_failure(layout::envelope& envelope, std::span<const std::byte> text) {
    auto& reason = envelope.their_reason;
    const std::size_t length = std::min(text.size(), std::size(reason) - 1);
    for (std::size_t index = 0; index < length; ++index) {
      reason[index].store(static_cast<char>(text[index]), std::memory_order_relaxed);
    }
    reason[length].store('\0', std::memory_order_relaxed);
  }

  void reply(const pending_message& message, message_answer what) const {
    answer(message, what);
    notify_sender(message);
  }

 private:
  /// Accepts an offer, and takes the bytes that are there already. Tells the sender only where that waits for it: it
  /// has no slot yet, or the slot does not hold all.
  void begin_streaming(pending_message& message) {
    layout::envelope& envelope = *message.envelope;
    message.streaming = true;
    envelope.drained.store(0);
    if (message.total >= least_read_bytes && senders_.can_read(message.peer)) {
      std::memcpy(&message.address, envelope.payload, sizeof(message.address));
      answer(message, message_answer::reads);
    } else {
      answer(message, message_answer::accepted);
      if (envelope.filled.load() == 0 || message.total > endpoint_.memory().sizes().message_slot_bytes) {
        notify_sender(message);
      }
    }
    take_bytes(message);
  }

  /// Tells the sender what this rank called.
  void write_call(const pending_message& message) {
    const operation& call = message.request->call;
    layout::envelope& envelope = *message.envelope;
    envelope.their_what.store(pack_call(call, false));
    envelope.their_bytes.store(call.bytes);
    envelope.their_tag.store(call.tag);
    envelope.their_site.store(endpoint_.site_of(call));
  }

  /// Answers that this rank fails. The sender throws peer_error with the text, as far as it has room.
  void fail(const pending_message& message, std::span<const std::byte> text) {
    write_call(message);
    write_failure(*message.envelope, text);
    reply(message, message_answer::failed);
  }

  /// Refuses an offer that does not fit; both sides throw mismatch_error.
  void answer_mismatch(pending_message& message) {
    write_call(message);
    const layout::envelope& envelope = *message.envelope;
    message_endpoint::finish(message, endpoint_.mismatch(message, message.peer, endpoint_.rank(), envelope));
    reply(message, message_answer::refused);
  }

  [[nodiscard]] bool take_from_slot(pending_message& message) {
    const layout::envelope& envelope = *message.envelope;
    const std::uint64_t ring = endpoint_.memory().sizes().message_slot_bytes;
    std::uint64_t count = std::min(envelope.filled.load(), message.total) - message.moved;
    if (count == 0) {
      return false;
    }
    count = std::min(count, ring - message.moved % ring);
    take(message, endpoint_.memory().message_slot(message.peer, envelope.slot.load()) + message.moved % ring, count);
    return true;
  }

  /// Reads the next bytes in the sender's memory. Where they are not there, the message begins anew, through a slot;
  /// then it returns false.
  [[nodiscard]] bool read_piece(pending_message& message) {
    transfer& request = *message.request;
    const auto count = static_cast<std::size_t>(std::min(message.total - message.moved, most_read_at_once));
    std::span<std::byte> to = request.into.subspan(message.appends ? 0 : static_cast<std::size_t>(message.moved));
    if (message.appends) {
      request.object.resize(request.object.size() + count);
      to = std::span(request.object).last(count);
    }
    if (!senders_.read(message, to.first(count))) {
      message.address = 0;
      message.moved = 0;
      request.object.clear();
      reply(message, message_answer::accepted);
      return false;
    }
    message.moved += count;
    return true;
  }

  static void take(pending_message& message, const std::byte* from, std::uint64_t count) {
    transfer& request = *message.request;
    if (message.appends) {
      request.object.insert(request.object.end(), from, from + count);
    } else if (count != 0) {
      detail::copy_bytes(request.into.data() + message.moved, from, count);
    }
    message.moved += count;
  }

  /// Ends a receive whose bytes are all there.
  void finish_received(pending_message& message) {
    std::exception_ptr problem;
    if (message.carries_failure) {
      const auto& text = message.request->object;
      problem = std::make_exception_ptr(
          peer_error(endpoint_.context(message),
                     detail::concat({endpoint_.health().who(message.peer), " failed in ",
                                     endpoint_.text_of(message.peer, *message.envelope), ": ",
                                     std::string(reinterpret_cast<const char*>(text.data()), text.size())}),
                     message.peer, false));
    }
    message_endpoint::finish(message, std::move(problem));
    reply(message, message.address != 0 ? message_answer::has_read : message_answer::taken);
  }

  static void answer(const pending_message& message, message_answer what) {
    message.envelope->answer.store(message.offer * layout::answer_kinds + static_cast<std::uint64_t>(what),
                                   std::memory_order_release);
  }
  void notify_sender(const pending_message& message) const {
    endpoint_.memory().notify(message.peer);
    endpoint_.memory().note_envelope(message.peer, *message.envelope);
  }

  message_endpoint& endpoint_;
  sender_memory senders_{endpoint_};
  std::vector<pending_message::clock::time_point> last_bytes_from_;  // by rank
};

}  // namespace hfcomm::engines
