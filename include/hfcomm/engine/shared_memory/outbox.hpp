// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <exception>

#include <hfcomm/engine/reduction/copy_bytes.hpp>
#include <hfcomm/engine/shared_memory/mail.hpp>

namespace hfcomm::engines {

/// The messages that a rank sends: offers them, one envelope each, and lets the bytes of those that are wanted pass
/// through its slots. Not thread-safe.
class outbox {
 public:
  explicit outbox(mail_desk& desk) : desk_(desk) {}

  [[nodiscard]] mail_entries& entries() noexcept { return entries_; }

  /// Takes every message's next step; whether there were any.
  bool progress(finished_transfers& finished) {
    bool any = false;
    for (mail_entry& one : entries_) {
      const bool offered = one.paper != nullptr;
      const bool moved = offered ? follow(one) : offer(one);
      if (moved) {
        any = true;
        one.active = mail_entry::clock::now();
        (offered ? streamed_ : offered_) = one.active;
      } else if (!offered) {
        break;  // strictly in order: no offer may overtake one that has found no envelope
      }
    }
    if (any) {
      desk_.sweep(entries_, finished);
    }
    return any;
  }

  /// Since when nothing has moved that this message waits for: while it waits for an envelope or a slot, those before
  /// it count.
  [[nodiscard]] mail_entry::clock::time_point still_since(const mail_entry& one) const noexcept {
    return one.paper == nullptr            ? std::max(one.active, offered_)
           : one.streaming && one.slot < 0 ? std::max(one.active, streamed_)
                                           : one.active;
  }

  /// For a message whose receiver is gone, and that nobody here waits for.
  void give_up(mail_entry& one) noexcept {
    if (one.paper != nullptr) {
      clear_away(one);
    }
    mail_desk::finish(one);
  }

 private:
  bool offer(mail_entry& one) {
    layout::mailbox& box = desk_.box();
    auto* const end = box.outgoing + layout::envelope_count;
    auto* const paper = std::find_if(box.outgoing, end, [](const layout::envelope& candidate) {
      return candidate.offer.load(std::memory_order_relaxed) == 0;
    });
    if (paper == end) {
      return false;
    }
    const operation& call = one.job->call;
    const auto data = one.job->data;
    // Release: a rank that still looks at an earlier message here, which was not its own, and sees this one's address
    // must see that the earlier one is gone.
    paper->destination.store(call.root, std::memory_order_release);
    paper->tag.store(call.tag, std::memory_order_relaxed);
    paper->site.store(desk_.site_of(call), std::memory_order_relaxed);
    paper->fit.store(mail_desk::fit(call), std::memory_order_relaxed);
    paper->what.store(pack_call(call, one.job->is_failure), std::memory_order_relaxed);
    paper->bytes.store(call.bytes, std::memory_order_relaxed);
    paper->filled.store(0, std::memory_order_relaxed);
    if (!data.empty() && data.size() <= sizeof(paper->payload)) {
      std::memcpy(paper->payload, data.data(), data.size());
    }
    one.paper = paper;
    paper->offer.store(one.number);
    const auto used = static_cast<std::uint32_t>(paper - box.outgoing) + 1;
    if (used > box.in_use.load(std::memory_order_relaxed)) {
      box.in_use.store(used);
    }
    desk_.memory().notify(call.root);
    return true;
  }

  /// Does what the receiver's answer asks for.
  bool follow(mail_entry& one) {
    const std::uint64_t reply = one.paper->answer.load();
    if (reply / 4 != one.number) {
      return false;
    }
    const int receiver = one.job->call.root;
    std::exception_ptr problem;
    switch (static_cast<mail_answer>(reply % 4)) {
      case mail_answer::accepted: one.streaming = true; return fill(one);
      case mail_answer::taken: break;
      case mail_answer::refused: problem = desk_.mismatch(one, desk_.rank(), receiver, *one.paper); break;
      case mail_answer::failed:
        problem = std::make_exception_ptr(peer_error(desk_.context(one),
                                                     desk_.watch().who(receiver) + " has no memory for a message of " +
                                                         std::to_string(one.job->call.bytes) + " bytes",
                                                     receiver, false));
        break;
    }
    clear_away(one);
    mail_desk::finish(one, std::move(problem));
    return true;
  }

  /// Lets the next bytes pass into the slot, where there is one and it has room.
  bool fill(mail_entry& one) {
    if (one.slot < 0) {
      const auto free = std::find(slots_used_.begin(), slots_used_.end(), false);
      if (free == slots_used_.end()) {
        return false;
      }
      *free = true;
      one.slot = static_cast<int>(free - slots_used_.begin());
      one.paper->slot.store(static_cast<std::uint32_t>(one.slot));
    }
    const std::uint64_t ring = desk_.memory().sizes().mail_slot_bytes;
    const std::uint64_t left = one.job->data.size() - one.moved;
    const std::uint64_t room = ring - (one.moved - one.paper->drained.load());
    // In quarters, so that both sides are at work at once.
    const std::uint64_t count = std::min(left, ring / 4);
    if (count == 0 || room < count) {
      return false;
    }
    detail::copy_bytes(desk_.memory().mail_slot(desk_.rank(), static_cast<std::uint32_t>(one.slot)) + one.moved % ring,
                       one.job->data.data() + one.moved, count);
    one.moved += count;
    one.paper->filled.store(one.moved);
    desk_.memory().notify(one.job->call.root);
    return true;
  }

  void clear_away(mail_entry& one) noexcept {
    if (one.slot >= 0) {
      slots_used_[static_cast<std::size_t>(one.slot)] = false;
      one.slot = -1;
    }
    one.paper->offer.store(0);
  }

  mail_desk& desk_;
  mail_entries entries_;
  std::array<bool, layout::mail_slot_count> slots_used_{};
  mail_entry::clock::time_point offered_{};   // when a message last found an envelope
  mail_entry::clock::time_point streamed_{};  // when one last moved after that
};

}  // namespace hfcomm::engines
