// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <exception>
#include <optional>
#include <string>
#include <vector>

#include <hfcomm/engine/reduction/copy_bytes.hpp>
#include <hfcomm/engine/shared_memory/messages.hpp>

namespace hfcomm::engines {

/// The messages that a rank wants: finds offers that are meant for them, answers, and takes the bytes. Not thread-safe.
class inbox {
 public:
  explicit inbox(message_endpoint& endpoint)
      : endpoint_(endpoint), last_bytes_from_(static_cast<std::size_t>(endpoint.size())) {}

  [[nodiscard]] message_list& entries() noexcept { return entries_; }

  /// Takes every message's next step; whether there were any.
  bool progress(finished_transfers& finished) {
    bool any = false;
    for (pending_message& message : entries_) {
      any = (message.envelope == nullptr ? find_offer(message) : take_bytes(message)) || any;
    }
    if (any) {
      endpoint_.sweep(entries_, finished);
    }
    return any;
  }

  /// Since when nothing has moved that this message waits for: while its bytes wait for a slot of the sender, that
  /// sender's other messages count.
  [[nodiscard]] pending_message::clock::time_point idle_since(const pending_message& message) const noexcept {
    return message.streaming && message.moved == 0
               ? std::max(message.active, last_bytes_from_[static_cast<std::size_t>(message.peer)])
               : message.active;
  }

  /// What is there for this rank, but not wanted; as sentences.
  [[nodiscard]] std::string unwanted() const {
    std::string text;
    for (int source = 0; source < endpoint_.size(); ++source) {
      for_each_offer(source, [&](const layout::envelope& envelope, std::uint64_t /*number*/) {
        text += " Rank " + std::to_string(source) + " offers " + endpoint_.text_of(source, envelope) + '.';
      });
    }
    return text;
  }

 private:
  struct found_offer {
    int source;
    layout::envelope* envelope;
    std::uint64_t number;
  };

  /// The unanswered offers of `source` to this rank.
  template <class Visit>
  void for_each_offer(int source, Visit&& visit) const {
    layout::mailbox& box = endpoint_.memory().mailbox(source);
    const std::uint32_t in_use = std::min<std::uint32_t>(box.in_use.load(), layout::envelope_count);
    for (std::uint32_t index = 0; index < in_use; ++index) {
      layout::envelope& envelope = box.outgoing[index];
      const std::uint64_t number = envelope.offer.load();
      // However long we are kept from looking on: address and answer are of the same offer if that is still there after
      // them. What is for us and has no answer then stays until we give one.
      if (number != 0 && envelope.destination.load() == endpoint_.rank() && envelope.answer.load() / 4 != number &&
          envelope.offer.load() == number) {
        visit(envelope, number);
      }
    }
  }

  /// The earliest offer of `source` with this tag.
  [[nodiscard]] std::optional<found_offer> earliest(int source, std::uint64_t tag) const {
    std::optional<found_offer> first;
    const auto scan = [&] {
      for_each_offer(source, [&](layout::envelope& envelope, std::uint64_t number) {
        if (envelope.tag.load() == tag && (!first || number < first->number)) {
          first = found_offer{source, &envelope, number};
        }
      });
    };
    scan();
    if (first) {
      // While we looked, the sender may have put an earlier message behind us and a later one before us. Whatever it
      // offered before the one that we have seen, we see now.
      scan();
    }
    return first;
  }

  bool find_offer(pending_message& message) {
    const operation& call = message.job->call;
    const int ranks = endpoint_.size();
    for (int turn = 0; turn < (call.root < 0 ? ranks : 1); ++turn) {
      // Starting behind the rank that was heard last gives everyone a turn.
      const int source = call.root < 0 ? (last_source_ + 1 + turn) % ranks : call.root;
      if (const auto found = earliest(source, call.tag)) {
        last_source_ = source;
        accept(first_that_wants(*found, message), *found);
        return true;
      }
    }
    return false;
  }

  /// An offer that came after an earlier receive had looked is that one's, all the same.
  [[nodiscard]] pending_message& first_that_wants(const found_offer& found, const pending_message& finder) {
    const auto& wanted = finder.job->call;
    return *std::find_if(entries_.begin(), entries_.end(), [&](const pending_message& message) {
      const auto& call = message.job->call;
      return message.envelope == nullptr && call.tag == wanted.tag && (call.root < 0 || call.root == found.source);
    });
  }

  void accept(pending_message& message, const found_offer& found) {
    transfer& job = *message.job;
    layout::envelope& envelope = *found.envelope;
    message.envelope = &envelope;
    message.offer = found.number;
    message.peer = found.source;
    message.total = envelope.bytes.load();
    message.carries_failure = (envelope.what.load() >> 25 & 1) != 0;
    message.appends = message.carries_failure || job.call.content == payload::object;
    message.active = pending_message::clock::now();
    job.source = message.peer;
    if (!message.carries_failure && (envelope.fit.load() != message_endpoint::fit(job.call) ||
                                     (!message.appends && message.total != job.into.size()))) {
      refuse(message);
      return;
    }
    const bool here = message.total <= sizeof(envelope.payload);
    try {
      if (message.appends) {
        job.object.clear();
        job.object.reserve(message.total);  // not resize: the bytes are written once
      }
    } catch (const std::exception&) {  // bad_alloc, length_error
      message_endpoint::finish(message, std::make_exception_ptr(engine_error(
                                            endpoint_.context(message),
                                            "there is no memory for a message of " + std::to_string(message.total) +
                                                " bytes from rank " + std::to_string(message.peer))));
      reply(message, message_answer::failed);
      return;
    }
    if (here) {
      take(message, envelope.payload, message.total);
      finish_received(message);
    } else {
      envelope.drained.store(0);
      message.streaming = true;
      reply(message, message_answer::accepted);
    }
  }

  void refuse(pending_message& message) {
    const operation& call = message.job->call;
    layout::envelope& envelope = *message.envelope;
    envelope.their_what.store(pack_call(call, false));
    envelope.their_bytes.store(call.bytes);
    envelope.their_tag.store(call.tag);
    envelope.their_site.store(endpoint_.site_of(call));
    message_endpoint::finish(message, endpoint_.mismatch(message, message.peer, endpoint_.rank(), envelope));
    reply(message, message_answer::refused);
  }

  bool take_bytes(pending_message& message) {
    layout::envelope& envelope = *message.envelope;
    const std::uint64_t ring = endpoint_.memory().sizes().message_slot_bytes;
    std::uint64_t count = std::min(envelope.filled.load(), message.total) - message.moved;
    if (count == 0) {
      return false;
    }
    count = std::min(count, ring - message.moved % ring);
    take(message, endpoint_.memory().message_slot(message.peer, envelope.slot.load()) + message.moved % ring, count);
    message.active = pending_message::clock::now();
    last_bytes_from_[static_cast<std::size_t>(message.peer)] = message.active;
    if (message.moved == message.total) {
      finish_received(message);
    } else {
      envelope.drained.store(message.moved);
      endpoint_.memory().notify(message.peer);
    }
    return true;
  }

  static void take(pending_message& message, const std::byte* from, std::uint64_t count) {
    transfer& job = *message.job;
    if (message.appends) {
      job.object.insert(job.object.end(), from, from + count);
    } else if (count != 0) {
      detail::copy_bytes(job.into.data() + message.moved, from, count);
    }
    message.moved += count;
  }

  /// All bytes are here.
  void finish_received(pending_message& message) {
    std::exception_ptr problem;
    if (message.carries_failure) {
      const auto& text = message.job->object;
      problem = std::make_exception_ptr(peer_error(
          endpoint_.context(message),
          endpoint_.watch().who(message.peer) + " failed in " + endpoint_.text_of(message.peer, *message.envelope) +
              ": " + std::string(reinterpret_cast<const char*>(text.data()), text.size()),
          message.peer, false));
    }
    message_endpoint::finish(message, std::move(problem));
    reply(message, message_answer::taken);
  }

  void reply(const pending_message& message, message_answer what) const {
    message.envelope->answer.store(message.offer * 4 + static_cast<std::uint64_t>(what));
    endpoint_.memory().notify(message.peer);
  }

  message_endpoint& endpoint_;
  message_list entries_;
  std::vector<pending_message::clock::time_point> last_bytes_from_;  // when bytes last came from each rank
  int last_source_ = -1;
};

}  // namespace hfcomm::engines
