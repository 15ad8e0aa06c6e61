// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include <hfcomm/core/plain_list.hpp>
#include <hfcomm/engine/host_engine.hpp>
#include <hfcomm/engine/shared_memory/steps.hpp>

namespace hfcomm::engines {

/// A scatterv or gatherv of few bytes. A rank's parts, behind its lists of lengths where there are any, lie in its
/// small slot as they lie in the slot otherwise (see all_to_all_v). Ranks that have left the operation early find the
/// lists there when they compare them, so a rank that does not leave early uses it, too.
class small_parts {
 public:
  explicit small_parts(lockstep& steps) : steps_(steps) {}

  /// Returns whether this rank's lists and parts fit. Across machines there are no small slots.
  [[nodiscard]] bool suits(const operation& call, const rank_parts& mine) const {
    if (call.pattern == movement::to_all || steps_.sizes().spans_machines() || mine.lengths_only) {
      return false;
    }
    if (call.content == payload::buffer) {  // all ranks come to the same answer
      return call.bytes * (ranks() - 1) <= layout::small_slot_bytes;
    }
    std::size_t total = header_bytes(call);
    for (std::size_t to = 0; to < ranks(); ++to) {
      total += length_for(call, mine, to);
    }
    return total <= layout::small_slot_bytes;
  }

  /// Publishes this rank's lists and parts, which fit, in its next step.
  void publish(const operation& call, const rank_parts& mine) {
    const layout::outgoing_places places{
        .equal = 0, .in_segment = 0, .can_read_all = 0, .has_empty_slot = 0, .is_small = 1};
    std::memcpy(steps_.cell(steps_.rank(), steps_.next()).payload, &places, sizeof(places));
    std::byte* const slot = steps_.small_slot(steps_.rank(), steps_.next());
    std::byte* part = slot + header_bytes(call);
    for (std::size_t to = 0; to < ranks(); ++to) {
      const std::size_t length = length_for(call, mine, to);
      if (call.content != payload::buffer) {
        put(slot, to, sends(call, me(), to) ? mine.part_for(call, to).size() : 0);
        put(slot, ranks() + to, mine.expected.empty() ? any_length : mine.expected[to]);
      }
      if (length != 0) {
        std::memcpy(part, mine.part_for(call, to).data(), length);
        part += length;
      }
    }
    steps_.publish(call);
  }

  /// Ends the published step of a rank that leaves early: takes this rank's part of the root's, if it gets one. Returns
  /// false where the root's parts do not fit; then the operation goes on with all ranks.
  bool leave(const operation& call, const rank_parts& mine, receiver& out) {
    const std::uint64_t step = steps_.step();
    const auto root = static_cast<std::size_t>(call.root);
    if (call.receives(steps_.rank())) {
      steps_.wait_for(call, call.root);
      layout::outgoing_places places;
      std::memcpy(&places, steps_.cell(call.root, step).payload, sizeof(places));
      if (places.is_small == 0) {
        steps_.settle_earlier(call);
        return false;
      }
    }
    if (call.pattern == movement::from_root) {
      take(call, mine, root, steps_.small_slot(call.root, step), out);
    }
    if (call.content == payload::uneven) {
      steps_.check_lists_later();
    }
    steps_.finish();
    return true;
  }

 private:
  [[nodiscard]] std::size_t me() const noexcept { return static_cast<std::size_t>(steps_.rank()); }
  [[nodiscard]] std::size_t ranks() const noexcept { return static_cast<std::size_t>(steps_.size()); }
  [[nodiscard]] std::size_t header_bytes(const operation& call) const noexcept {
    return call.content != payload::buffer ? 3 * ranks() * sizeof(std::uint64_t) : 0;
  }
  [[nodiscard]] static bool sends(const operation& call, std::size_t from, std::size_t to) noexcept {
    const auto root = static_cast<std::size_t>(call.root);
    return call.pattern == movement::from_root ? from == root : to == root;
  }
  /// Returns the bytes that this rank puts into its slot for `to`.
  [[nodiscard]] std::size_t length_for(const operation& call, const rank_parts& mine, std::size_t to) const {
    return to != me() && sends(call, me(), to) ? mine.part_for(call, to).size() : 0;
  }
  static void put(std::byte* slot, std::size_t index, std::uint64_t number) noexcept {
    std::memcpy(slot + index * sizeof(number), &number, sizeof(number));
  }
  [[nodiscard]] static std::uint64_t get(const std::byte* slot, std::size_t index) noexcept {
    std::uint64_t number = 0;
    std::memcpy(&number, slot + index * sizeof(number), sizeof(number));
    return number;
  }

  /// Delivers this rank's part of the root's slot.
  void take(const operation& call, const rank_parts& mine, std::size_t root, const std::byte* slot, receiver& out) {
    const std::byte* part = slot + header_bytes(call);
    std::uint64_t length = call.bytes;
    for (std::size_t to = 0; to <= me(); ++to) {
      length = call.content != payload::buffer ? get(slot, to) : call.bytes;
      part += to != me() && to != root ? length : 0;
    }
    if (call.content == payload::uneven) {
      if (me() != root && length != mine.expected[root]) {
        throw_unfit_part([&] { return steps_.context(call); }, steps_.memory(), steps_.step(), call,
                         {call.root, steps_.rank(), length, mine.expected[root]});
      }
      lengths_.assign(ranks(), 0);
      lengths_[root] = length;
      out.expect(lengths_);
    }
    out.receive(call.root, me() == root ? mine.part_for(call, me()) : std::span(part, static_cast<std::size_t>(length)),
                0, length);
  }

  lockstep& steps_;
  detail::plain_list<std::uint64_t> lengths_;  // scratch: from each rank
};

}  // namespace hfcomm::engines
