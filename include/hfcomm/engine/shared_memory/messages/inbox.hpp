// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <cstdint>
#include <cstring>
#include <exception>
#include <iterator>
#include <new>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/core/std_algorithm.hpp>
#include <hfcomm/engine/reduction/copy_bytes.hpp>
#include <hfcomm/engine/shared_memory/messages/message_endpoint.hpp>
#include <hfcomm/engine/shared_memory/messages/message_index.hpp>
#include <hfcomm/engine/shared_memory/messages/outbox.hpp>
#include <hfcomm/engine/shared_memory/messages/sender_memory.hpp>

namespace hfcomm::engines {

/// The messages that a rank receives. Finds the offers for them, answers, and takes the bytes. Where a sender lacks
/// envelopes, it notes the offers that no receive wants, and asks for them when one does (see outbox). Not thread-safe.
class inbox {
 public:
  inbox(message_endpoint& endpoint, outbox& sent)
      : endpoint_(endpoint), outbox_(sent), last_bytes_from_(static_cast<std::size_t>(endpoint.size())) {}

  [[nodiscard]] message_list& entries() noexcept { return entries_; }

  /// Adds receives, in this order.
  void add(message_list& fresh) {
    for (auto one = fresh.begin(); one != fresh.end(); ++one) {
      if (!take_noted(one)) {
        index_.add(place_of(one));
      }
    }
    entries_.splice(entries_.end(), fresh);
  }

  /// Removes a receive that has found no offer yet, if it is still under way.
  void take_back(const transfer& one) {
    if (const auto found = find_open(one); found != entries_.end()) {
      index_.remove(place_of(found));
      entries_.erase(found);
    }
  }

  /// Returns a receive that has found no offer yet; null where it has, or is not under way.
  [[nodiscard]] pending_message* open_receive(const transfer& one) {
    const auto found = find_open(one);
    return found == entries_.end() ? nullptr : &*found;
  }

  /// Moves the finished receives to `finished`, whatever has finished them.
  void sweep(finished_transfers& finished) {
    answered_probes_.clear();
    for (auto one = entries_.begin(); one != entries_.end(); ++one) {
      if (!one->request->finished.load() || one->envelope != nullptr) {
        continue;
      }
      if (one->is_noted) {
        asked_.remove({one, one->peer, one->offer});
      } else if (one->peer < 0) {
        index_.remove(place_of(one));
      }
    }
    std::erase_if(streaming_, [](const auto& one) { return one->request->finished.load(); });
    endpoint_.sweep(entries_, finished);
  }

  /// Takes the next step of every message; returns whether there was any.
  bool progress(finished_transfers& finished) {
    bool any = false;
    for (std::size_t next = 0; next < streaming_.size();) {
      const auto message = streaming_[next];
      any = take_bytes(*message) || any;
      if (message->request->finished.load()) {
        streaming_.erase(streaming_.begin() + static_cast<std::ptrdiff_t>(next));
        remove(message, finished);
      } else {
        ++next;
      }
    }
    for (const auto probe : std::exchange(answered_probes_, {})) {
      remove(probe, finished);
      any = true;
    }
    return pair_offers(finished) || any;
  }

  /// Returns the time of the last progress that this message depends on. While its bytes wait for a slot of the sender,
  /// the progress of that sender's other messages counts.
  [[nodiscard]] pending_message::clock::time_point idle_since(const pending_message& message) const noexcept {
    return message.streaming && message.moved == 0
               ? std::max(message.active, last_bytes_from_[static_cast<std::size_t>(message.peer)])
               : message.active;
  }

  /// Returns sentences about the offers to this rank that no receive wants, of three at most.
  [[nodiscard]] std::string unwanted() const { return unwanted(0, endpoint_.size()); }
  /// The same for the offers of one rank.
  [[nodiscard]] std::string unwanted(int source) const { return unwanted(source, source + 1); }

 private:
  struct found_offer {
    int source;
    layout::envelope* envelope;
    std::uint64_t number;
    std::uint64_t tag;
  };

  [[nodiscard]] std::string unwanted(int first, int end) const {
    constexpr int most = 3;
    std::string text;
    int count = 0;
    const auto add = [&](int source, const offer_header& offer) {
      if (++count <= most) {
        detail::append(text, {" Rank ", source, " offers ", endpoint_.text_of(source, offer), '.'});
      }
    };
    for (const pending_message& one : noted_) {
      if (one.peer >= first && one.peer < end) {
        add(one.peer, one.noted);
      }
    }
    for (int source = first; source < end; ++source) {
      for_each_offer(source, [&](const layout::envelope& envelope, std::uint64_t number) {
        if (number < layout::again_flag) {
          add(source, message_endpoint::header_of(envelope));
        }
      });
    }
    if (count > most) {
      detail::append(text, {" There are ", count - most, " more such offers."});
    }
    return text;
  }

  /// Calls `visit(envelope, number)` for each unanswered offer of `source` to this rank.
  template <class Visit>
  void for_each_offer(int source, Visit&& visit) const {
    const auto all = endpoint_.memory().envelopes(source);
    const auto in_use = std::min<std::size_t>(endpoint_.memory().mailbox(source).in_use.load(), all.size());
    for (layout::envelope& envelope : all.first(in_use)) {
      const std::uint64_t number = envelope.offer.load();
      // Destination and answer belong to the same offer if it is still there after reading them, however long that
      // took. An unanswered offer to this rank stays until this rank answers.
      if (number != 0 && envelope.destination.load() == endpoint_.rank() &&
          envelope.answer.load() / layout::answer_kinds != number && envelope.offer.load() == number) {
        visit(envelope, number);
      }
    }
  }

  [[nodiscard]] message_list::iterator find_open(const transfer& one) {
    return std::find_if(entries_.begin(), entries_.end(), [&](const pending_message& message) {
      return message.request.get() == &one && message.envelope == nullptr && message.peer < 0;
    });
  }

  /// Returns what the index knows a receive by.
  [[nodiscard]] static message_index::entry place_of(message_list::iterator one) {
    return {one, one->request->call.root, one->request->call.tag};
  }

  /// Asks for a message that was noted and that this receive wants, or answers a probe for it. Returns whether there is
  /// one.
  bool take_noted(message_list::iterator one) {
    const auto found = noted_index_.find(one->request->call.root, one->request->call.tag);
    if (!found) {
      return false;
    }
    const pending_message& offer = *found->message;
    describe_offer(*one->request, offer.peer, offer.noted);
    one->peer = offer.peer;
    if (one->request->is_probe) {
      message_endpoint::finish(*one);
      answered_probes_.push_back(one);
      return true;
    }
    one->is_noted = true;
    one->offer = offer.number | layout::again_flag;
    asked_.add({one, one->peer, one->offer});
    outbox_.ask(one->peer, offer.number);
    noted_index_.remove(*found);
    noted_.erase(found->message);
    return true;
  }

  /// Returns whether the message is the text of its sender's failure.
  [[nodiscard]] static bool carries_failure(const layout::envelope& envelope) noexcept {
    return (envelope.what.load() >> 25 & 1) != 0;
  }

  /// Notes an offer that no receive wants, so that its envelope is free again.
  void note(const found_offer& found) {
    const pending_message offer{.envelope = found.envelope, .offer = found.number, .peer = found.source};
    try {
      const offer_header header = message_endpoint::header_of(*found.envelope);
      noted_.push_back({.number = found.number, .peer = found.source, .noted = header});
      noted_index_.add({std::prev(noted_.end()), found.source, found.tag});
    } catch (const std::bad_alloc&) {
      const std::string_view text = "there is no memory to note another message";
      write_failure(*found.envelope, std::as_bytes(std::span(text)));
      reply(offer, message_answer::failed);
      return;
    }
    reply(offer, message_answer::noted);
  }

  /// Removes a receive that is finished, and neither in the index nor streaming.
  void remove(message_list::iterator message, finished_transfers& finished) {
    finished.push_back(message->request);
    entries_.erase(message);
  }

  /// Pairs offers with the receives that want them; returns whether there were any.
  bool pair_offers(finished_transfers& finished) {
    bool any = false;
    const int ranks = endpoint_.size();
    const std::uint32_t urgent = endpoint_.box().urgent_offers.load();
    const bool looks_at_all = urgent != seen_urgent_;
    bool has_seen_all = true;
    // Starting behind the last source gives every rank a turn.
    const int first = last_source_ + 1;
    for (int turn = 0; turn < ranks && (looks_at_all || index_.has_any() || asked_.has_any()); ++turn) {
      const int source = (first + turn) % ranks;
      if (looks_at_all || index_.has_of(source) || asked_.has_of(source)) {
        any = pair_offers_of(source, finished, looks_at_all, has_seen_all) || any;
      }
    }
    if (has_seen_all) {
      seen_urgent_ = urgent;
    }
    return any;
  }

  /// The same for those of one rank, of which it takes only one where receives want any rank's, so that others have
  /// their turn; then it has not seen all. `notes`: it notes those that no receive wants.
  bool pair_offers_of(int source, finished_transfers& finished, bool notes, bool& has_seen_all) {
    const bool takes_one = index_.has_wild();
    bool any = false;
    unwanted_.clear();
    for (const found_offer& offer : offers_of(source)) {
      if ((offer.number & layout::ask_flag) != 0) {
        if (outbox_.offer_again(source, offer.tag, finished)) {
          reply({.envelope = offer.envelope, .offer = offer.number, .peer = source}, message_answer::taken);
          any = true;
        } else {
          has_seen_all = false;
        }
        continue;
      }
      if (const auto asked = asked_.find(source, offer.number)) {
        asked_.remove(*asked);
        asked->message->is_noted = false;
        take_offer(asked->message, offer, finished);
        any = true;
        continue;
      }
      if (!index_.has_of(source) && !asked_.has_of(source) && !outbox_.is_noted_by(source)) {
        has_seen_all = has_seen_all && !notes;
        break;  // nobody waits for what comes behind
      }
      auto next = index_.find(source, offer.tag);
      for (; next && next->message->request->is_probe; next = index_.find(source, offer.tag)) {
        index_.remove(*next);
        report(*next->message, offer);
        remove(next->message, finished);
        any = true;
      }
      if (next) {
        index_.remove(*next);
        last_source_ = source;
        take_offer(next->message, offer, finished);
        if (takes_one) {
          has_seen_all = false;
          return true;
        }
        any = true;
      } else if (notes && !carries_failure(*offer.envelope)) {
        unwanted_.push_back(offer);
      }
    }
    // An offer is noted where others of its rank are awaited, or this rank's are: an ask may wait for an envelope.
    if (!unwanted_.empty()) {
      if (index_.has_of(source) || asked_.has_of(source) || outbox_.is_noted_by(source)) {
        std::for_each(unwanted_.begin(), unwanted_.end(), [this](const found_offer& offer) { note(offer); });
        any = true;
      } else {
        has_seen_all = false;
      }
    }
    return any;
  }

  /// Pairs a receive, which is in no index, with an offer.
  void take_offer(message_list::iterator taker, const found_offer& offer, finished_transfers& finished) {
    accept(*taker, offer);
    if (taker->request->finished.load()) {
      remove(taker, finished);
    } else {
      streaming_.push_back(taker);
    }
  }

  /// Returns the unanswered offers of a rank: asks and what was asked for, then the others in the order of their
  /// numbers.
  [[nodiscard]] const std::vector<found_offer>& offers_of(int source) {
    std::uint64_t last = 0;
    offers_.clear();
    for_each_offer(source, [&](layout::envelope& envelope, std::uint64_t number) {
      if (number >= layout::again_flag) {
        offers_.push_back({source, &envelope, number, envelope.tag.load()});
      } else {
        last = std::max(last, number);
      }
    });
    if (last == 0) {
      return offers_;
    }
    const auto asked = static_cast<std::ptrdiff_t>(offers_.size());
    // During the scan, the sender may have put an earlier message into an envelope already scanned, and a later one
    // into one not yet scanned. A second scan sees everything that it offered before the last message that was found.
    for_each_offer(source, [&](layout::envelope& envelope, std::uint64_t number) {
      if (number <= last) {
        offers_.push_back({source, &envelope, number, envelope.tag.load()});
      }
    });
    std::sort(offers_.begin() + asked, offers_.end(),
              [](const found_offer& one, const found_offer& other) { return one.number < other.number; });
    return offers_;
  }

  /// Ends a probe. The offer stays for the receive that takes it.
  static void report(pending_message& message, const found_offer& found) {
    describe_offer(*message.request, found.source, message_endpoint::header_of(*found.envelope));
    message_endpoint::finish(message);
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

  /// Writes why this rank fails.
  static void write_failure(layout::envelope& envelope, std::span<const std::byte> text) {
    auto& reason = envelope.their_reason;
    const std::size_t length = std::min(text.size(), std::size(reason) - 1);
    for (std::size_t index = 0; index < length; ++index) {
      reason[index].store(static_cast<char>(text[index]), std::memory_order_relaxed);
    }
    reason[length].store('\0', std::memory_order_relaxed);
  }

  /// Refuses an offer that does not fit; both sides throw mismatch_error.
  void answer_mismatch(pending_message& message) {
    write_call(message);
    const layout::envelope& envelope = *message.envelope;
    message_endpoint::finish(message, endpoint_.mismatch(message, message.peer, endpoint_.rank(), envelope));
    reply(message, message_answer::refused);
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

  void reply(const pending_message& message, message_answer what) const {
    answer(message, what);
    notify_sender(message);
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
  outbox& outbox_;
  sender_memory senders_{endpoint_};
  message_list entries_;
  message_list noted_;                                   // offers that no receive has wanted: number, source and header
  message_index noted_index_;                            // of those, by source and tag
  message_index asked_;                                  // entries that were asked for, by source and its number
  std::vector<message_list::iterator> answered_probes_;  // entries that a noted offer has finished
  message_index index_;                                  // of entries that have found no offer
  std::vector<message_list::iterator> streaming_;        // entries whose bytes are on their way
  std::vector<found_offer> offers_;
  std::vector<found_offer> unwanted_;
  std::vector<pending_message::clock::time_point> last_bytes_from_;  // by rank: when its bytes last came
  int last_source_ = -1;
  std::uint32_t seen_urgent_ = 0;  // of the mailbox's urgent offers
};

}  // namespace hfcomm::engines
