// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <string>
#include <vector>

#include <hfcomm/engine/hierarchical/frame.hpp>
#include <hfcomm/engine/hierarchical/frame_sender.hpp>
#include <hfcomm/engine/hierarchical/mirrored_group.hpp>
#include <hfcomm/engine/hierarchical/records.hpp>
#include <hfcomm/engine/shared_memory/memory.hpp>
#include <hfcomm/engine/shared_memory/messages.hpp>

namespace hfcomm::engines {

/// The messages of a group between machines: offers and bytes go to the receiver's machine, answers go back. Not
/// thread-safe.
class message_mirror {
 public:
  explicit message_mirror(mirrored_group& group) : group_(group), sent_(static_cast<std::size_t>(group.size())) {}

  /// Sends the changed offers of a rank of this machine to the machines of their receivers.
  void send_offers(frame_sender& out, int rank) {
    for_each_changed(rank, [&](std::uint32_t index) { send_offer(out, rank, index); });
  }

  /// Sends the answers of this machine's ranks to messages of a rank of another one.
  void send_answers(frame_sender& out, int sender) {
    for_each_changed(sender, [&](std::uint32_t index) {
      const layout::envelope& envelope = group_.memory().envelopes(sender)[index];
      const auto copy = answer_copy::of(envelope);
      const auto kind = static_cast<message_answer>(copy.answer % layout::answer_kinds);
      const int receiver = envelope.destination.load();
      std::string reason;
      if ((kind == message_answer::refused || kind == message_answer::failed) && group_.is_local(receiver)) {
        send_site(out, receiver, copy.site);
        reason = message_endpoint::reason_of(envelope);
      }
      frame what = group_.frame_of(frame_kind::answer, sender, index);
      what.put(copy);
      out.send_copy(group_.machine_of(sender), what, mirrored_group::bytes_of(reason));
    });
  }

  /// Sends the last call of a message of a rank of this machine, where it is a new one.
  void send_last_call(frame_sender& out, int rank) {
    const auto call = message_call_copy::of(group_.memory().mailbox(rank).last_call);
    if (call.number != sent_of(rank).last_call) {
      sent_of(rank).last_call = call.number;
      send_site(out, rank, call.site);
      frame what = group_.frame_of(frame_kind::last_message, rank, 0);
      what.put(call);
      group_.send_to_all(out, what);
    }
  }

  void apply_offer(const frame& what) {
    const auto copy = what.get<offer_copy>();
    if (!group_.is_local(copy.destination)) {
      return;
    }
    layout::mailbox& box = group_.memory().mailbox(what.rank);
    copy.offer_in(group_.memory().envelopes(what.rank)[what.index]);
    if (const auto used = static_cast<std::uint32_t>(what.index) + 1; used > box.in_use.load()) {
      box.in_use.store(used);
    }
    if (copy.is_urgent != 0) {
      group_.memory().mailbox(copy.destination).urgent_offers.fetch_add(1);
    }
    group_.memory().notify(copy.destination);
  }

  void apply_message_part(const frame& what) {
    layout::envelope& envelope = group_.memory().envelopes(what.rank)[what.index];
    const auto [number, filled] = what.get<std::array<std::uint64_t, 2>>();
    const int destination = envelope.destination.load();
    if (envelope.offer.load() == number && group_.is_local(destination) && filled >= envelope.filled.load()) {
      envelope.slot.store(what.value);
      envelope.filled.store(filled);
      group_.memory().notify(destination);
    }
  }

  void apply_answer(const frame& what, std::span<const std::byte> reason) {
    layout::envelope& envelope = group_.memory().envelopes(what.rank)[what.index];
    const auto copy = what.get<answer_copy>();
    if (envelope.offer.load() != copy.answer / layout::answer_kinds) {
      return;
    }
    const std::size_t length = std::min(reason.size(), std::size(envelope.their_reason) - 1);
    for (std::size_t letter = 0; letter < length; ++letter) {
      envelope.their_reason[letter].store(static_cast<char>(reason[letter]), std::memory_order_relaxed);
    }
    envelope.their_reason[length].store('\0', std::memory_order_relaxed);
    copy.answer_in(envelope);
    group_.memory().notify(what.rank);
  }

 private:
  struct sent_message {
    std::uint64_t number = 0;
    std::uint64_t filled = 0;
  };
  /// The last values that were sent of a rank of this machine.
  struct sent_state {
    std::uint64_t last_call = 0;
    mirrored_group::site_hashes sites{};
    std::vector<sent_message> messages{};  // by envelope; empty until the first one
  };

  [[nodiscard]] sent_state& sent_of(int rank) { return sent_[static_cast<std::size_t>(rank)]; }

  /// Calls `visit(index)` for each envelope of a rank with a mark, and clears the marks first.
  template <class Visit>
  void for_each_changed(int rank, Visit visit) {
    std::uint32_t first = 0;
    for (std::atomic<std::uint64_t>& marks : group_.memory().mailbox(rank).changed) {
      if (marks.load(std::memory_order_relaxed) != 0) {
        for (std::uint64_t bits = marks.exchange(0); bits != 0; bits &= bits - 1) {
          visit(first + static_cast<std::uint32_t>(std::countr_zero(bits)));
        }
      }
      first += 64;
    }
  }

  void send_site(frame_sender& out, int rank, std::uint32_t index) {
    group_.send_site(out, frame_kind::message_site, rank, index, group_.memory().mailbox(rank).sites,
                     sent_of(rank).sites);
  }

  void send_offer(frame_sender& out, int rank, std::uint32_t index) {
    const layout::envelope& envelope = group_.memory().envelopes(rank)[index];
    const std::uint64_t number = envelope.offer.load();
    const int destination = envelope.destination.load();
    // While the offer is there, what was read belongs to it. If it has changed, there is another mark. An offer to a
    // rank of this machine may go at any moment; one to another machine stays until this agent brings the answer.
    if (number == 0 || envelope.offer.load() != number || !group_.is_remote(destination)) {
      return;
    }
    const auto copy = offer_copy::of(envelope, number);
    const int machine = group_.machine_of(destination);
    auto& messages = sent_of(rank).messages;
    messages.resize(group_.memory().sizes().envelopes());
    sent_message& sent = messages[index];
    if (sent.number != number) {
      sent = {number, 0};
      send_site(out, rank, copy.site);
      frame what = group_.frame_of(frame_kind::offer, rank, index);
      what.put(copy);
      out.send(machine, what);
    }
    send_message_bytes(out, machine, rank, index, sent);
  }

  /// Sends what has been put into a message's slot since the last time.
  void send_message_bytes(frame_sender& out, int machine, int rank, std::uint32_t index, sent_message& sent) {
    const layout::envelope& envelope = group_.memory().envelopes(rank)[index];
    const std::uint64_t ring = group_.memory().sizes().message_slot_bytes;
    const std::uint64_t filled = envelope.filled.load();
    const std::uint32_t slot = envelope.slot.load() % layout::message_slot_count;
    if (envelope.offer.load() != sent.number) {
      return;
    }
    while (sent.filled < filled) {
      const std::uint64_t begin = sent.filled % ring;
      const std::uint64_t count = std::min(filled - sent.filled, ring - begin);
      sent.filled += count;
      frame what = group_.frame_of(frame_kind::message_part, rank, index);
      what.offset = begin;
      what.value = slot;
      what.put(std::array<std::uint64_t, 2>{sent.number, sent.filled});
      out.send(machine, what, {group_.memory().message_slot(rank, slot) + begin, static_cast<std::size_t>(count)});
    }
  }

  mirrored_group& group_;
  std::vector<sent_state> sent_;  // by rank
};

}  // namespace hfcomm::engines
