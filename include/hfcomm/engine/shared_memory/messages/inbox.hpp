// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <exception>
#include <iterator>
#include <new>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/core/std_algorithm.hpp>
#include <hfcomm/engine/shared_memory/messages/message_endpoint.hpp>
#include <hfcomm/engine/shared_memory/messages/message_index.hpp>
#include <hfcomm/engine/shared_memory/messages/message_intake.hpp>
#include <hfcomm/engine/shared_memory/messages/offer_finder.hpp>
#include <hfcomm/engine/shared_memory/messages/outbox.hpp>

namespace hfcomm::engines {

/// The messages that a rank receives. Finds the offers for them, answers, and takes the bytes. Where a sender lacks
/// envelopes, it notes the offers that no receive wants, and asks for them when one does (see outbox). Not thread-safe.
class inbox {
 public:
  inbox(message_endpoint& endpoint, outbox& sent)
      : endpoint_(endpoint), outbox_(sent), offers_(endpoint), intake_(endpoint) {}

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
      any = intake_.take_bytes(*message) || any;
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
    return message.streaming && message.moved == 0 ? std::max(message.active, intake_.last_bytes_from(message.peer))
                                                   : message.active;
  }

  /// Returns sentences about the offers to this rank that no receive wants, of three at most.
  [[nodiscard]] std::string unwanted() const { return unwanted(0, endpoint_.size()); }
  /// The same for the offers of one rank.
  [[nodiscard]] std::string unwanted(int source) const { return unwanted(source, source + 1); }

 private:
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
      offers_.for_each(source, [&](const layout::envelope& envelope, std::uint64_t number) {
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
    message_intake::describe_offer(*one->request, offer.peer, offer.noted);
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

  /// Notes an offer that no receive wants, so that its envelope is free again.
  void note(const found_offer& found) {
    const pending_message offer{.envelope = found.envelope, .offer = found.number, .peer = found.source};
    try {
      const offer_header header = message_endpoint::header_of(*found.envelope);
      noted_.push_back({.number = found.number, .peer = found.source, .noted = header});
      noted_index_.add({std::prev(noted_.end()), found.source, found.tag});
    } catch (const std::bad_alloc&) {
      const std::string_view text = "there is no memory to note another message";
      message_intake::write_failure(*found.envelope, std::as_bytes(std::span(text)));
      intake_.reply(offer, message_answer::failed);
      return;
    }
    intake_.reply(offer, message_answer::noted);
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
    for (const found_offer& offer : offers_.find(source)) {
      if ((offer.number & layout::ask_flag) != 0) {
        if (outbox_.offer_again(source, offer.tag, finished)) {
          intake_.reply({.envelope = offer.envelope, .offer = offer.number, .peer = source}, message_answer::taken);
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
      } else if (notes && !message_intake::carries_failure(*offer.envelope)) {
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
    intake_.accept(*taker, offer);
    if (taker->request->finished.load()) {
      remove(taker, finished);
    } else {
      streaming_.push_back(taker);
    }
  }

  /// Ends a probe. The offer stays for the receive that takes it.
  static void report(pending_message& message, const found_offer& found) {
    message_intake::describe_offer(*message.request, found.source, message_endpoint::header_of(*found.envelope));
    message_endpoint::finish(message);
  }

  message_endpoint& endpoint_;
  outbox& outbox_;
  offer_finder offers_;
  message_intake intake_;
  message_list entries_;
  message_list noted_;                                   // offers that no receive has wanted: number, source and header
  message_index noted_index_;                            // of those, by source and tag
  message_index asked_;                                  // entries that were asked for, by source and its number
  std::vector<message_list::iterator> answered_probes_;  // entries that a noted offer has finished
  message_index index_;                                  // of entries that have found no offer
  std::vector<message_list::iterator> streaming_;        // entries whose bytes are on their way
  std::vector<found_offer> unwanted_;
  int last_source_ = -1;
  std::uint32_t seen_urgent_ = 0;  // of the mailbox's urgent offers
};

}  // namespace hfcomm::engines
