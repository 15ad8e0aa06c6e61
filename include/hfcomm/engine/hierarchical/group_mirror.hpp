// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <hfcomm/core/hash.hpp>
#include <hfcomm/engine/hierarchical/frame.hpp>
#include <hfcomm/engine/hierarchical/frame_sender.hpp>
#include <hfcomm/engine/hierarchical/records.hpp>
#include <hfcomm/engine/shared_memory/call_record.hpp>
#include <hfcomm/engine/shared_memory/group_memory.hpp>
#include <hfcomm/engine/shared_memory/message_endpoint.hpp>

namespace hfcomm::engines {

/// One machine's copy of the memory of a group with ranks on several machines. Its agent sends what this machine's
/// ranks write, and writes what comes for the ranks of other machines. So all algorithms of the shared-memory engine,
/// and its error texts, hold across machines.
///
/// Why a cell or a slot may be sent straight from where it is: a rank publishes step s only after a rank of every
/// machine has published s - 2, and that one has seen the rank's step s - 4 before. So s - 4, whose place s takes, has
/// arrived everywhere.
///
/// Not thread-safe.
class group_mirror {
 public:
  /// `members` are the ranks' indices into the job's roster, `machine_of` the machine of each of those.
  group_mirror(std::uint64_t id, const std::vector<int>& members, const std::vector<int>& machine_of, int self,
               std::shared_ptr<rendezvous::shared_segment> segment)
      : id_(id), self_(self), memory_(std::move(segment), static_cast<int>(members.size())) {
    for (const int member : members) {
      machines_of_ranks_.push_back(machine_of[static_cast<std::size_t>(member)]);
    }
    for (int rank = 0; rank < memory_.sizes().ranks; ++rank) {
      const int machine = machine_of_rank(rank);
      if (machine == self_) {
        local_.push_back(rank);
      } else if (std::find(others_.begin(), others_.end(), machine) == others_.end()) {
        others_.push_back(machine);
      }
    }
    sent_.resize(machines_of_ranks_.size());
  }
  group_mirror(const group_mirror&) = delete;
  group_mirror& operator=(const group_mirror&) = delete;

  [[nodiscard]] std::uint64_t id() const noexcept { return id_; }
  /// The group's bit on the machine's board.
  void set_board_index(std::uint32_t index) noexcept { memory_.header().board_index = index; }
  [[nodiscard]] std::uint32_t board_index() const noexcept { return memory_.header().board_index; }
  [[nodiscard]] const std::vector<int>& local_ranks() const noexcept { return local_; }
  /// Returns whether all ranks of this machine have left the group.
  [[nodiscard]] bool is_over() const {
    return std::all_of(local_.begin(), local_.end(), [&](int rank) { return sent_of(rank).departed != 0; });
  }

  /// Sends what has changed. Returns whether there was anything.
  bool collect(frame_sender& out) {
    bool any = false;
    auto& marks = memory_.header().changes;
    for_each_marked(marks.mailboxes, [&](int rank) {
      any = true;
      machine_of_rank(rank) == self_ ? send_offers(out, rank) : send_answers(out, rank);
    });
    for_each_marked(marks.steps, [&](int rank) {
      any = true;
      send_steps(out, rank);
    });
    return any;
  }

  /// Sends what changes rarely, and is only read for error texts and after a hang.
  void send_rare_changes(frame_sender& out) {
    for (const int rank : local_) {
      sent_state& sent = sent_of(rank);
      const auto call = message_call_copy::of(memory_.mailbox(rank).last_call);
      if (call.number != sent.last_message) {
        sent.last_message = call.number;
        send_site(out, frame_kind::message_site, rank, call.site, memory_.mailbox(rank).sites, sent.message_sites);
        frame what = frame_of(frame_kind::last_message, rank, 0);
        what.put(call);
        send_to_all(out, what);
      }
      const auto board = device_board_copy::of(memory_.block(rank).devices);
      if (!(board == sent.board)) {
        sent.board = board;
        for (const int machine : others_) {
          out.send_copy(machine, frame_of(frame_kind::device_board, rank, 0), std::as_bytes(std::span(&board, 1)));
        }
      }
    }
  }

  /// Returns the record of a loss that this machine's ranks propose, once.
  [[nodiscard]] std::optional<loss_record> take_proposal() {
    const layout::break_record& proposed = memory_.header().proposed;
    if (has_proposed_ || !proposed.is_complete()) {
      return std::nullopt;
    }
    has_proposed_ = true;
    return loss_record::of(id_, proposed);
  }

  /// Breaks the group with the record that all machines get.
  void break_with(const loss_record& why) {
    layout::break_record& lost = memory_.header().lost;
    std::uint32_t state = layout::break_record::whole;
    if (lost.state.compare_exchange_strong(state, layout::break_record::written_by(0))) {
      lost.write(why.culprit, why.missing, why.by_exception, why.text);
      memory_.wake_all();
    }
  }

  /// Wakes all ranks: how another rank ended has become known.
  void wake_all() const { memory_.wake_all(); }

  /// Returns where the payload of a frame goes; empty where `apply` takes it. Nothing where the frame cannot be right.
  [[nodiscard]] std::span<std::byte> place_for(const frame& what) const {
    if (what.kind == frame_kind::slot_part) {
      return {memory_.slot(what.rank, what.index) + what.offset, what.bytes};
    }
    if (what.kind == frame_kind::message_part) {
      return {memory_.message_slot(what.rank, what.value) + what.offset, what.bytes};
    }
    return {};
  }

  /// Returns whether a machine may send this frame.
  [[nodiscard]] bool is_valid(int machine, const frame& what) const {
    if (what.rank < 0 || what.rank >= memory_.sizes().ranks) {
      return false;
    }
    const layout::dimensions& sizes = memory_.sizes();
    const std::size_t end = what.offset + what.bytes;
    switch (what.kind) {
      case frame_kind::answer: return machine_of_rank(what.rank) == self_ && what.index < layout::envelope_count;
      case frame_kind::slot_part:
        return machine_of_rank(what.rank) == machine && end <= sizes.slot_bytes + sizes.result_bytes;
      case frame_kind::message_part:
        return machine_of_rank(what.rank) == machine && end <= sizes.message_slot_bytes &&
               what.index < layout::envelope_count;
      case frame_kind::site:
      case frame_kind::message_site:
        return machine_of_rank(what.rank) == machine && what.index < layout::site_count &&
               what.bytes == sizeof(layout::site_text);
      case frame_kind::offer: return machine_of_rank(what.rank) == machine && what.index < layout::envelope_count;
      case frame_kind::device_board:
        return machine_of_rank(what.rank) == machine && what.bytes == sizeof(device_board_copy);
      default: return machine_of_rank(what.rank) == machine;
    }
  }

  /// Writes what has come. `payload` is where place_for said.
  void apply(const frame& what, std::span<const std::byte> payload) {
    layout::rank_block& block = memory_.block(what.rank);
    switch (what.kind) {
      case frame_kind::slot_part: break;
      case frame_kind::cell: {
        const auto copy = what.get<cell_copy>();
        copy.publish_in(memory_.cell(what.rank, copy.step));
        has_new_steps_ = true;
        break;
      }
      case frame_kind::site: write_site(block.sites[what.index], payload); break;
      case frame_kind::message_site: write_site(block.messages.sites[what.index], payload); break;
      case frame_kind::failure:
        (::new (&block.failures[what.index % layout::depth]) rendezvous::failure_text{})->write(text_of(payload));
        break;
      case frame_kind::departed:
        block.departed.store(what.value);
        memory_.wake_all();
        break;
      case frame_kind::offer: apply_offer(what); break;
      case frame_kind::message_part: apply_message_part(what); break;
      case frame_kind::answer: apply_answer(what, payload); break;
      case frame_kind::last_message: what.get<message_call_copy>().store_in(block.messages.last_call); break;
      case frame_kind::device_board: {
        device_board_copy board;
        std::memcpy(&board, payload.data(), sizeof(board));
        board.store_in(block.devices);
        break;
      }
      default: break;
    }
  }

  /// Wakes the ranks that wait for a step, if any came since the last call.
  void wake_if_new() {
    if (std::exchange(has_new_steps_, false) && memory_.header().sleepers.load() != 0) {
      memory_.wake();
    }
  }

 private:
  using site_hashes = std::array<std::uint64_t, layout::site_count>;
  struct sent_message {
    std::uint64_t number = 0;
    std::uint64_t filled = 0;
  };
  /// What has been sent of a rank of this machine, and the answers of a rank of another one.
  struct sent_state {
    std::uint64_t step = 0;
    std::uint32_t departed = 0;
    std::uint64_t last_message = 0;
    device_board_copy board;
    site_hashes sites{};
    site_hashes message_sites{};
    std::array<sent_message, layout::envelope_count> messages{};
  };

  [[nodiscard]] int machine_of_rank(int rank) const { return machines_of_ranks_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] sent_state& sent_of(int rank) {
    auto& state = sent_[static_cast<std::size_t>(rank)];
    if (!state) {
      state = std::make_unique<sent_state>();
    }
    return *state;
  }
  [[nodiscard]] sent_state sent_of(int rank) const {
    const auto& state = sent_[static_cast<std::size_t>(rank)];
    return state ? *state : sent_state{};
  }

  [[nodiscard]] frame frame_of(frame_kind kind, int rank, std::uint64_t index) const {
    frame what;
    what.group = id_;
    what.kind = kind;
    what.rank = rank;
    what.index = index;
    return what;
  }
  void send_to_all(frame_sender& out, const frame& what) const {
    for (const int machine : others_) {
      out.send(machine, what);
    }
  }

  /// Calls `visit(rank)` for each rank with a mark, and clears the marks first.
  template <std::size_t Words, class Visit>
  void for_each_marked(std::atomic<std::uint64_t> (&marks)[Words], Visit&& visit) {
    const auto words = static_cast<std::size_t>((memory_.sizes().ranks + 63) / 64);
    for (std::size_t word = 0; word < words; ++word) {
      if (marks[word].load(std::memory_order_relaxed) == 0) {
        continue;
      }
      for (std::uint64_t bits = marks[word].exchange(0); bits != 0; bits &= bits - 1) {
        visit(static_cast<int>(word * 64) + std::countr_zero(bits));
      }
    }
  }

  // Steps.

  void send_steps(frame_sender& out, int rank) {
    sent_state& sent = sent_of(rank);
    while (true) {
      const layout::flag_cell& cell = memory_.cell(rank, sent.step + 1);
      const std::uint64_t step = cell.step.load(std::memory_order_acquire);
      if (step <= sent.step) {
        break;
      }
      sent.step = step;  // greater by 1, except in a broken group
      send_step(out, rank, step, cell);
    }
    const std::uint32_t departed = memory_.block(rank).departed.load();
    if (departed != sent.departed) {
      sent.departed = departed;
      frame what = frame_of(frame_kind::departed, rank, 0);
      what.value = departed;
      send_to_all(out, what);
    }
  }

  void send_step(frame_sender& out, int rank, std::uint64_t step, const layout::flag_cell& cell) {
    for (const int machine : others_) {
      send_parts(out, machine, rank, step);
    }
    const auto copy = cell_copy::of(cell, step);
    send_site(out, frame_kind::site, rank, copy.site % layout::site_count, memory_.block(rank).sites,
              sent_of(rank).sites);
    if (announces_failure(cell)) {
      const std::string text = memory_.block(rank).failures[step % layout::depth].read().value_or(std::string());
      for (const int machine : others_) {
        out.send_copy(machine, frame_of(frame_kind::failure, rank, step), bytes_of(text));
      }
    }
    frame what = frame_of(frame_kind::cell, rank, step);
    what.put(copy);
    send_to_all(out, what);
  }

  /// Sends the parts of a slot that ranks of `machine` read. Parts that lie behind one another go together.
  void send_parts(frame_sender& out, int machine, int rank, std::uint64_t step) {
    const std::byte* const list = memory_.slot_ranges(rank, step);
    std::uint64_t count = 0;
    std::memcpy(&count, list, sizeof(count));
    count = std::min<std::uint64_t>(count, layout::dimensions::most_ranges(memory_.sizes().ranks));
    layout::slot_range whole{.offset = 0, .bytes = 0, .reader = -1};
    const auto send_whole = [&] {
      if (whole.bytes != 0) {
        frame what = frame_of(frame_kind::slot_part, rank, step);
        what.offset = whole.offset;
        out.send(machine, what, {memory_.slot(rank, step) + whole.offset, whole.bytes});
      }
    };
    for (std::uint64_t index = 0; index < count; ++index) {
      layout::slot_range part;
      std::memcpy(&part, list + sizeof(count) + index * sizeof(part), sizeof(part));
      if (part.reader >= 0 && machine_of_rank(part.reader) != machine) {
        continue;
      }
      if (part.offset == whole.offset + whole.bytes) {
        whole.bytes += part.bytes;
      } else {
        send_whole();
        whole = part;
      }
    }
    send_whole();
  }

  /// Sends a call site whose text has changed since it was sent last.
  void send_site(frame_sender& out, frame_kind kind, int rank, std::uint32_t index,
                 const layout::site_text (&sites)[layout::site_count], site_hashes& sent) {
    index %= layout::site_count;
    std::array<std::uint64_t, layout::site_bytes / 8> words;
    load_words(words, sites[index].words);
    std::uint64_t hash = 1;
    for (const std::uint64_t word : words) {
      hash = detail::mix(hash, word);
    }
    if (sent[index] == hash) {
      return;
    }
    sent[index] = hash;
    for (const int machine : others_) {
      out.send_copy(machine, frame_of(kind, rank, index), std::as_bytes(std::span(words)));
    }
  }

  static void write_site(layout::site_text& to, std::span<const std::byte> payload) {
    std::array<std::uint64_t, layout::site_bytes / 8> words;
    std::memcpy(words.data(), payload.data(), sizeof(words));
    store_words(to.words, words);
  }

  [[nodiscard]] static std::span<const std::byte> bytes_of(const std::string& text) {
    return std::as_bytes(std::span(text));
  }
  [[nodiscard]] static std::string text_of(std::span<const std::byte> bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

  // Messages.

  /// Sends the changed offers of a rank of this machine to the machines of their receivers.
  void send_offers(frame_sender& out, int rank) {
    layout::mailbox& box = memory_.mailbox(rank);
    for (std::uint64_t bits = box.changed.exchange(0); bits != 0; bits &= bits - 1) {
      send_offer(out, rank, static_cast<std::uint32_t>(std::countr_zero(bits)));
    }
  }

  void send_offer(frame_sender& out, int rank, std::uint32_t index) {
    const layout::envelope& envelope = memory_.mailbox(rank).outgoing[index];
    const std::uint64_t number = envelope.offer.load();
    const auto copy = offer_copy::of(envelope, number);
    // While the offer is there, what was read belongs to it. If it has changed, there is another mark.
    if (number == 0 || envelope.offer.load() != number || !has_rank(copy.destination) ||
        machine_of_rank(copy.destination) == self_) {
      return;
    }
    const int machine = machine_of_rank(copy.destination);
    sent_message& sent = sent_of(rank).messages[index];
    if (sent.number != number) {
      sent = {number, 0};
      send_site(out, frame_kind::message_site, rank, copy.site, memory_.mailbox(rank).sites,
                sent_of(rank).message_sites);
      frame what = frame_of(frame_kind::offer, rank, index);
      what.put(copy);
      out.send(machine, what);
    }
    send_message_bytes(out, machine, rank, index, sent);
  }

  /// Sends what has been put into a message's slot since the last time.
  void send_message_bytes(frame_sender& out, int machine, int rank, std::uint32_t index, sent_message& sent) {
    const layout::envelope& envelope = memory_.mailbox(rank).outgoing[index];
    const std::uint64_t ring = memory_.sizes().message_slot_bytes;
    const std::uint64_t filled = envelope.filled.load();
    const std::uint32_t slot = envelope.slot.load() % layout::message_slot_count;
    if (envelope.offer.load() != sent.number) {
      return;
    }
    while (sent.filled < filled) {
      const std::uint64_t begin = sent.filled % ring;
      const std::uint64_t count = std::min(filled - sent.filled, ring - begin);
      sent.filled += count;
      frame what = frame_of(frame_kind::message_part, rank, index);
      what.offset = begin;
      what.value = slot;
      what.put(std::array<std::uint64_t, 2>{sent.number, sent.filled});
      out.send(machine, what, {memory_.message_slot(rank, slot) + begin, static_cast<std::size_t>(count)});
    }
  }

  void apply_offer(const frame& what) {
    const auto copy = what.get<offer_copy>();
    if (!has_rank(copy.destination) || machine_of_rank(copy.destination) != self_) {
      return;
    }
    layout::mailbox& box = memory_.mailbox(what.rank);
    copy.offer_in(box.outgoing[what.index]);
    if (const auto used = static_cast<std::uint32_t>(what.index) + 1; used > box.in_use.load()) {
      box.in_use.store(used);
    }
    memory_.notify(copy.destination);
  }

  void apply_message_part(const frame& what) {
    layout::envelope& envelope = memory_.mailbox(what.rank).outgoing[what.index];
    const auto [number, filled] = what.get<std::array<std::uint64_t, 2>>();
    const int destination = envelope.destination.load();
    if (envelope.offer.load() == number && has_rank(destination)) {
      envelope.slot.store(what.value);
      envelope.filled.store(filled);
      memory_.notify(destination);
    }
  }

  /// Sends the answers of this machine's ranks to messages of a rank of another one.
  void send_answers(frame_sender& out, int sender) {
    layout::mailbox& box = memory_.mailbox(sender);
    for (std::uint64_t bits = box.changed.exchange(0); bits != 0; bits &= bits - 1) {
      const auto index = static_cast<std::uint32_t>(std::countr_zero(bits));
      const layout::envelope& envelope = box.outgoing[index];
      const auto copy = answer_copy::of(envelope);
      const auto kind = static_cast<message_answer>(copy.answer % 4);
      const int receiver = envelope.destination.load();
      std::string reason;
      if ((kind == message_answer::refused || kind == message_answer::failed) && has_rank(receiver)) {
        send_site(out, frame_kind::message_site, receiver, copy.site, memory_.mailbox(receiver).sites,
                  sent_of(receiver).message_sites);
        reason = message_endpoint::reason_of(envelope);
      }
      frame what = frame_of(frame_kind::answer, sender, index);
      what.put(copy);
      out.send_copy(machine_of_rank(sender), what, bytes_of(reason));
    }
  }

  void apply_answer(const frame& what, std::span<const std::byte> reason) {
    layout::envelope& envelope = memory_.mailbox(what.rank).outgoing[what.index];
    const auto copy = what.get<answer_copy>();
    if (envelope.offer.load() != copy.answer / 4) {
      return;
    }
    const std::size_t length = std::min(reason.size(), std::size(envelope.their_reason) - 1);
    for (std::size_t letter = 0; letter < length; ++letter) {
      envelope.their_reason[letter].store(static_cast<char>(reason[letter]), std::memory_order_relaxed);
    }
    envelope.their_reason[length].store('\0', std::memory_order_relaxed);
    copy.answer_in(envelope);
    memory_.notify(what.rank);
  }

  [[nodiscard]] bool has_rank(int rank) const noexcept { return rank >= 0 && rank < memory_.sizes().ranks; }

  std::uint64_t id_;
  int self_;
  group_memory memory_;
  std::vector<int> machines_of_ranks_;
  std::vector<int> local_;   // ranks of this machine
  std::vector<int> others_;  // machines of the other ranks
  std::vector<std::unique_ptr<sent_state>> sent_;
  bool has_proposed_ = false;
  bool has_new_steps_ = false;
};

}  // namespace hfcomm::engines
