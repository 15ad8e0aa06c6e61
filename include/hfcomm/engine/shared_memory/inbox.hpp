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
#include <hfcomm/engine/shared_memory/mail.hpp>

namespace hfcomm::engines {

/// The messages that a rank wants: finds offers that are meant for them, answers, and takes the bytes. Not thread-safe.
class inbox {
 public:
  explicit inbox(mail_desk& desk) : desk_(desk), streamed_(static_cast<std::size_t>(desk.size())) {}

  [[nodiscard]] mail_entries& entries() noexcept { return entries_; }

  /// Takes every message's next step; whether there were any.
  bool progress(finished_transfers& finished) {
    bool any = false;
    for (mail_entry& one : entries_) {
      any = (one.paper == nullptr ? look_for(one) : drain(one)) || any;
    }
    if (any) {
      desk_.sweep(entries_, finished);
    }
    return any;
  }

  /// Since when nothing has moved that this message waits for: while its bytes wait for a slot of the sender, that
  /// sender's other messages count.
  [[nodiscard]] mail_entry::clock::time_point still_since(const mail_entry& one) const noexcept {
    return one.streaming && one.moved == 0 ? std::max(one.active, streamed_[static_cast<std::size_t>(one.peer)])
                                           : one.active;
  }

  /// What is there for this rank, but not wanted; as sentences.
  [[nodiscard]] std::string unwanted() const {
    std::string text;
    for (int source = 0; source < desk_.size(); ++source) {
      for_each_offer(source, [&](const layout::envelope& paper, std::uint64_t /*number*/) {
        text += " Rank " + std::to_string(source) + " offers " + desk_.text_of(source, paper) + '.';
      });
    }
    return text;
  }

 private:
  struct finding {
    int source;
    layout::envelope* paper;
    std::uint64_t number;
  };

  /// The unanswered offers of `source` to this rank.
  template <class Visit>
  void for_each_offer(int source, Visit&& visit) const {
    layout::mailbox& box = desk_.memory().mail(source);
    const std::uint32_t in_use = std::min<std::uint32_t>(box.in_use.load(), layout::envelope_count);
    for (std::uint32_t index = 0; index < in_use; ++index) {
      layout::envelope& paper = box.outgoing[index];
      const std::uint64_t number = paper.offer.load();
      // However long we are kept from looking on: address and answer are of the same offer if that is still there after
      // them. What is for us and has no answer then stays until we give one.
      if (number != 0 && paper.destination.load() == desk_.rank() && paper.answer.load() / 4 != number &&
          paper.offer.load() == number) {
        visit(paper, number);
      }
    }
  }

  /// The earliest offer of `source` with this tag.
  [[nodiscard]] std::optional<finding> earliest(int source, std::uint64_t tag) const {
    std::optional<finding> first;
    const auto look = [&] {
      for_each_offer(source, [&](layout::envelope& paper, std::uint64_t number) {
        if (paper.tag.load() == tag && (!first || number < first->number)) {
          first = finding{source, &paper, number};
        }
      });
    };
    look();
    if (first) {
      // While we looked, the sender may have put an earlier message behind us and a later one before us. Whatever it
      // offered before the one that we have seen, we see now.
      look();
    }
    return first;
  }

  bool look_for(mail_entry& one) {
    const operation& call = one.job->call;
    const int ranks = desk_.size();
    for (int turn = 0; turn < (call.root < 0 ? ranks : 1); ++turn) {
      // Starting behind the rank that was heard last gives everyone a turn.
      const int source = call.root < 0 ? (last_heard_ + 1 + turn) % ranks : call.root;
      if (const auto found = earliest(source, call.tag)) {
        last_heard_ = source;
        accept(first_that_wants(*found, one), *found);
        return true;
      }
    }
    return false;
  }

  /// An offer that came after an earlier receive had looked is that one's, all the same.
  [[nodiscard]] mail_entry& first_that_wants(const finding& found, const mail_entry& finder) {
    const auto& wanted = finder.job->call;
    return *std::find_if(entries_.begin(), entries_.end(), [&](const mail_entry& one) {
      const auto& call = one.job->call;
      return one.paper == nullptr && call.tag == wanted.tag && (call.root < 0 || call.root == found.source);
    });
  }

  void accept(mail_entry& one, const finding& found) {
    transfer& job = *one.job;
    layout::envelope& paper = *found.paper;
    one.paper = &paper;
    one.offer = found.number;
    one.peer = found.source;
    one.total = paper.bytes.load();
    one.bad_news = (paper.what.load() >> 25 & 1) != 0;
    one.appends = one.bad_news || job.call.content == payload::object;
    one.active = mail_entry::clock::now();
    job.source = one.peer;
    if (!one.bad_news &&
        (paper.fit.load() != mail_desk::fit(job.call) || (!one.appends && one.total != job.into.size()))) {
      refuse(one);
      return;
    }
    const bool here = one.total <= sizeof(paper.payload);
    try {
      if (one.appends) {
        job.object.clear();
        job.object.reserve(one.total);  // not resize: the bytes are written once
      }
    } catch (const std::exception&) {  // bad_alloc, length_error
      mail_desk::finish(
          one, std::make_exception_ptr(
                   engine_error(desk_.context(one), "there is no memory for a message of " + std::to_string(one.total) +
                                                        " bytes from rank " + std::to_string(one.peer))));
      reply(one, mail_answer::failed);
      return;
    }
    if (here) {
      take(one, paper.payload, one.total);
      arrive(one);
    } else {
      paper.drained.store(0);
      one.streaming = true;
      reply(one, mail_answer::accepted);
    }
  }

  void refuse(mail_entry& one) {
    const operation& call = one.job->call;
    layout::envelope& paper = *one.paper;
    paper.their_what.store(pack_call(call, false));
    paper.their_bytes.store(call.bytes);
    paper.their_tag.store(call.tag);
    paper.their_site.store(desk_.site_of(call));
    mail_desk::finish(one, desk_.mismatch(one, one.peer, desk_.rank(), paper));
    reply(one, mail_answer::refused);
  }

  bool drain(mail_entry& one) {
    layout::envelope& paper = *one.paper;
    const std::uint64_t ring = desk_.memory().sizes().mail_slot_bytes;
    std::uint64_t count = std::min(paper.filled.load(), one.total) - one.moved;
    if (count == 0) {
      return false;
    }
    count = std::min(count, ring - one.moved % ring);
    take(one, desk_.memory().mail_slot(one.peer, paper.slot.load()) + one.moved % ring, count);
    one.active = mail_entry::clock::now();
    streamed_[static_cast<std::size_t>(one.peer)] = one.active;
    if (one.moved == one.total) {
      arrive(one);
    } else {
      paper.drained.store(one.moved);
      desk_.memory().notify(one.peer);
    }
    return true;
  }

  static void take(mail_entry& one, const std::byte* from, std::uint64_t count) {
    transfer& job = *one.job;
    if (one.appends) {
      job.object.insert(job.object.end(), from, from + count);
    } else if (count != 0) {
      detail::copy_bytes(job.into.data() + one.moved, from, count);
    }
    one.moved += count;
  }

  /// All bytes are here.
  void arrive(mail_entry& one) {
    std::exception_ptr problem;
    if (one.bad_news) {
      const auto& text = one.job->object;
      problem = std::make_exception_ptr(
          peer_error(desk_.context(one),
                     desk_.watch().who(one.peer) + " failed in " + desk_.text_of(one.peer, *one.paper) + ": " +
                         std::string(reinterpret_cast<const char*>(text.data()), text.size()),
                     one.peer, false));
    }
    mail_desk::finish(one, std::move(problem));
    reply(one, mail_answer::taken);
  }

  void reply(const mail_entry& one, mail_answer what) const {
    one.paper->answer.store(one.offer * 4 + static_cast<std::uint64_t>(what));
    desk_.memory().notify(one.peer);
  }

  mail_desk& desk_;
  mail_entries entries_;
  std::vector<mail_entry::clock::time_point> streamed_;  // when bytes last came from each rank
  int last_heard_ = -1;
};

}  // namespace hfcomm::engines
