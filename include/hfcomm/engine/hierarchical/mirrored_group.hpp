// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <hfcomm/core/hash.hpp>
#include <hfcomm/engine/hierarchical/frame.hpp>
#include <hfcomm/engine/hierarchical/frame_sender.hpp>
#include <hfcomm/engine/hierarchical/records.hpp>
#include <hfcomm/engine/shared_memory/memory.hpp>
#include <hfcomm/machine/shared_segment.hpp>

namespace hfcomm::engines {

/// A group with ranks on several machines, as one machine's agent knows it: where its ranks are, and this machine's
/// copy of its memory.
class mirrored_group {
 public:
  /// Hashes of the call sites of a rank, as they were sent last; 0: never.
  using site_hashes = std::array<std::uint64_t, layout::site_count>;

  /// `members` are the ranks' indices into the job's roster, `machine_of` the machine of each of those.
  mirrored_group(std::uint64_t id, const std::vector<int>& members, const std::vector<int>& machine_of, int self,
                 std::shared_ptr<rendezvous::shared_segment> segment)
      : id_(id), self_(self), memory_(std::move(segment), static_cast<int>(members.size())) {
    for (int rank = 0; rank < size(); ++rank) {
      const int machine = machine_of[static_cast<std::size_t>(members[static_cast<std::size_t>(rank)])];
      machines_.push_back(machine);
      if (machine == self_) {
        local_.push_back(rank);
      } else if (std::find(others_.begin(), others_.end(), machine) == others_.end()) {
        others_.push_back(machine);
      }
    }
  }
  mirrored_group(const mirrored_group&) = delete;
  mirrored_group& operator=(const mirrored_group&) = delete;

  [[nodiscard]] std::uint64_t id() const noexcept { return id_; }
  [[nodiscard]] int size() const noexcept { return memory_.sizes().ranks; }
  [[nodiscard]] const group_memory& memory() const noexcept { return memory_; }
  [[nodiscard]] int machine_of(int rank) const { return machines_[static_cast<std::size_t>(rank)]; }
  /// Returns whether the group has such a rank, and on this machine.
  [[nodiscard]] bool is_local(int rank) const { return rank >= 0 && rank < size() && machine_of(rank) == self_; }
  /// Returns whether the group has such a rank, and on another machine.
  [[nodiscard]] bool is_remote(int rank) const { return rank >= 0 && rank < size() && machine_of(rank) != self_; }
  [[nodiscard]] const std::vector<int>& local_ranks() const noexcept { return local_; }
  /// Returns the machines of the other ranks.
  [[nodiscard]] const std::vector<int>& others() const noexcept { return others_; }

  [[nodiscard]] frame frame_of(frame_kind kind, int rank, std::uint64_t index) const {
    return {.group = id_, .kind = kind, .rank = rank, .index = index};
  }
  void send_to_all(frame_sender& out, const frame& what) const {
    for (const int machine : others_) {
      out.send(machine, what);
    }
  }

  void send_copy_to_all(frame_sender& out, const frame& what, std::span<const std::byte> payload) const {
    for (const int machine : others_) {
      out.send_copy(machine, what, payload);
    }
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
    send_copy_to_all(out, frame_of(kind, rank, index), std::as_bytes(std::span(words)));
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

 private:
  std::uint64_t id_;
  int self_;
  group_memory memory_;
  std::vector<int> machines_;  // by rank
  std::vector<int> local_;
  std::vector<int> others_;
};

}  // namespace hfcomm::engines
