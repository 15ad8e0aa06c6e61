// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include <hfcomm/engine/device_board.hpp>
#include <hfcomm/engine/shared_memory/memory.hpp>

/// Copies of shared records, as frames carry them.
namespace hfcomm::engines {

/// Copies atomics in shared memory word by word, because their rank may write them at any time.
template <class Word, std::size_t Count>
void load_words(std::array<Word, Count>& to, const std::atomic<Word> (&from)[Count]) noexcept {
  for (std::size_t index = 0; index < Count; ++index) {
    to[index] = from[index].load(std::memory_order_relaxed);
  }
}
template <class Word, std::size_t Count>
void store_words(std::atomic<Word> (&to)[Count], const std::array<Word, Count>& from) noexcept {
  for (std::size_t index = 0; index < Count; ++index) {
    to[index].store(from[index], std::memory_order_relaxed);
  }
}

/// A copy of a flag_cell.
struct cell_copy {
  std::uint64_t step = 0;
  std::uint64_t signature = 0;
  std::uint64_t bytes = 0;
  std::uint64_t what = 0;
  std::uint64_t tag = 0;
  std::uint32_t site = 0;
  std::uint32_t sequence = 0;
  std::array<std::byte, layout::inline_bytes> payload{};
  double factor = 1;

  /// Copies a cell whose step is published.
  static cell_copy of(const layout::flag_cell& cell, std::uint64_t step) noexcept {
    cell_copy copy{.step = step,
                   .signature = cell.signature.load(std::memory_order_relaxed),
                   .bytes = cell.bytes.load(std::memory_order_relaxed),
                   .what = cell.what.load(std::memory_order_relaxed),
                   .tag = cell.tag.load(std::memory_order_relaxed),
                   .site = cell.site.load(std::memory_order_relaxed),
                   .sequence = cell.sequence.load(std::memory_order_relaxed),
                   .payload = {},
                   .factor = cell.factor.load(std::memory_order_relaxed)};
    std::memcpy(copy.payload.data(), cell.payload, layout::inline_bytes);
    return copy;
  }

  /// Publishes the copy as the cell of its rank.
  void publish_in(layout::flag_cell& cell) const noexcept {
    cell.signature.store(signature, std::memory_order_relaxed);
    cell.bytes.store(bytes, std::memory_order_relaxed);
    cell.what.store(what, std::memory_order_relaxed);
    cell.tag.store(tag, std::memory_order_relaxed);
    cell.site.store(site, std::memory_order_relaxed);
    cell.sequence.store(sequence, std::memory_order_relaxed);
    std::memcpy(cell.payload, payload.data(), layout::inline_bytes);
    cell.factor.store(factor, std::memory_order_relaxed);
    cell.step.store(step, std::memory_order_seq_cst);
  }
};

/// A copy of the sender's half of an envelope.
struct offer_copy {
  std::uint64_t number = 0;
  std::uint64_t fit = 0;
  std::uint64_t what = 0;
  std::uint64_t bytes = 0;
  std::uint64_t tag = 0;
  std::int32_t destination = 0;
  std::uint32_t site = 0;
  std::uint32_t is_urgent = 0;
  std::array<std::byte, sizeof(layout::envelope::payload)> payload{};

  static offer_copy of(const layout::envelope& from, std::uint64_t number) noexcept {
    offer_copy copy{.number = number,
                    .fit = from.fit.load(),
                    .what = from.what.load(),
                    .bytes = from.bytes.load(),
                    .tag = from.tag.load(),
                    .destination = from.destination.load(),
                    .site = from.site.load(),
                    .is_urgent = from.is_urgent.load(),
                    .payload = {}};
    std::memcpy(copy.payload.data(), from.payload, sizeof(from.payload));
    return copy;
  }

  void offer_in(layout::envelope& to) const noexcept {
    to.offer.store(0);
    to.destination.store(destination);
    to.fit.store(fit);
    to.what.store(what);
    to.bytes.store(bytes);
    to.tag.store(tag);
    to.site.store(site);
    to.is_urgent.store(is_urgent);
    to.filled.store(0);
    std::memcpy(to.payload, payload.data(), payload.size());
    to.offer.store(number);
  }
};

/// A copy of the receiver's half of an envelope, without the reason.
struct answer_copy {
  std::uint64_t answer = 0;
  std::uint64_t drained = 0;
  std::uint64_t what = 0;
  std::uint64_t bytes = 0;
  std::uint64_t tag = 0;
  std::uint32_t site = 0;

  static answer_copy of(const layout::envelope& from) noexcept {
    // The answer first: what it stands for was written before it.
    const std::uint64_t answer = from.answer.load();
    return {.answer = answer,
            .drained = from.drained.load(),
            .what = from.their_what.load(),
            .bytes = from.their_bytes.load(),
            .tag = from.their_tag.load(),
            .site = from.their_site.load()};
  }

  void answer_in(layout::envelope& to) const noexcept {
    to.their_what.store(what);
    to.their_bytes.store(bytes);
    to.their_tag.store(tag);
    to.their_site.store(site);
    to.drained.store(drained);
    to.answer.store(answer);
  }
};

/// A copy of a message_call.
struct message_call_copy {
  std::uint64_t number = 0;
  std::uint64_t what = 0;
  std::uint64_t bytes = 0;
  std::uint64_t tag = 0;
  std::uint32_t site = 0;

  static message_call_copy of(const layout::message_call& from) noexcept {
    const std::uint64_t number = from.number.load(std::memory_order_acquire);
    return {number, from.what.load(), from.bytes.load(), from.tag.load(), from.site.load()};
  }
  void store_in(layout::message_call& to) const noexcept {
    to.what.store(what);
    to.bytes.store(bytes);
    to.tag.store(tag);
    to.site.store(site);
    to.number.store(number, std::memory_order_release);
  }
};

/// A copy of a device_board.
struct device_board_copy {
  std::uint64_t begun = 0;
  std::array<std::uint64_t, device_board::most_refused> refused{};
  std::array<std::uint64_t, device_board::text_bytes / 8> reason{};

  static device_board_copy of(const device_board& from) noexcept {
    device_board_copy copy;
    copy.begun = from.begun.load();
    load_words(copy.refused, from.refused);
    load_words(copy.reason, from.reason);
    return copy;
  }
  void store_in(device_board& to) const noexcept {
    store_words(to.reason, reason);
    store_words(to.refused, refused);
    to.begun.store(begun);
  }
  friend bool operator==(const device_board_copy&, const device_board_copy&) = default;
};

/// Why a group is broken, as agents tell each other.
struct loss_record {
  std::uint64_t group = 0;
  int culprit = -1;
  bool by_exception = false;
  std::vector<int> missing;
  std::string text;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(group, culprit, by_exception, missing, text);
  }

  static loss_record of(std::uint64_t group, const layout::break_record& from) {
    loss_record copy{
        .group = group, .culprit = from.culprit, .by_exception = from.by_exception, .missing = {}, .text = from.text};
    for (int rank = 0; rank < layout::max_ranks; ++rank) {
      if ((from.missing[rank / 64] >> (rank % 64) & 1) != 0) {
        copy.missing.push_back(rank);
      }
    }
    return copy;
  }
};

}  // namespace hfcomm::engines
