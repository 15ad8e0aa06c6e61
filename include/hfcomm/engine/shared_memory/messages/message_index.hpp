// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <vector>

#include <hfcomm/core/std_algorithm.hpp>
#include <hfcomm/engine/shared_memory/messages/message_endpoint.hpp>

namespace hfcomm::engines {

/// Messages in the order of their numbers. Most leave it at its front.
class message_queue {
 public:
  struct entry {
    message_list::iterator message;
    int rank = 0;           ///< -1: any
    std::uint64_t tag = 0;  ///< any_message_tag: any

    /// Returns whether this is for a rank and a tag. A wildcard on either side fits everything.
    [[nodiscard]] bool fits(int other_rank, std::uint64_t other_tag) const noexcept {
      return (rank == other_rank || rank < 0 || other_rank < 0) &&
             (tag == other_tag || tag == any_message_tag || other_tag == any_message_tag);
    }
  };

  [[nodiscard]] bool is_empty() const noexcept { return front_ == entries_.size(); }
  /// Adds a message behind those with lower numbers: offers of other machines may come in another order.
  void add(const entry& one) {
    auto place = entries_.end();
    while (place != begin() && std::prev(place)->message->number > one.message->number) {
      --place;
    }
    entries_.insert(place, one);
  }

  [[nodiscard]] message_list::iterator take_first() {
    const auto first = begin()->message;
    erase(begin());
    return first;
  }

  void remove(const pending_message& one) {
    erase(std::find_if(begin(), entries_.end(), [&](const entry& other) { return &*other.message == &one; }));
  }

  /// Removes those for which `gone(message)`; returns their number.
  template <class Gone>
  std::size_t remove_if(Gone gone) {
    entries_.erase(entries_.begin(), begin());
    front_ = 0;
    return std::erase_if(entries_, [&](const entry& one) { return gone(*one.message); });
  }

  /// Returns the first that is for this rank and tag; null: there is none. Valid until the next change.
  [[nodiscard]] const entry* find(int rank, std::uint64_t tag) {
    const auto found = std::find_if(begin(), entries_.end(), [&](const entry& one) { return one.fits(rank, tag); });
    return found == entries_.end() ? nullptr : &*found;
  }

  /// Calls `visit(entry)` for each.
  template <class Visit>
  void for_each(Visit visit) {
    std::for_each(begin(), entries_.end(), visit);
  }

 private:
  [[nodiscard]] std::vector<entry>::iterator begin() { return entries_.begin() + static_cast<std::ptrdiff_t>(front_); }

  void erase(std::vector<entry>::iterator place) {
    if (place == begin()) {
      ++front_;
    } else {
      entries_.erase(place);
    }
    if (front_ * 2 > entries_.size()) {
      entries_.erase(entries_.begin(), begin());
      front_ = 0;
    }
  }

  std::vector<entry> entries_;
  std::size_t front_ = 0;  // those before it are gone
};

/// Messages by rank and tag, so that the first one for both is found in constant time, however many there are. Those
/// with any rank or any tag are searched one after the other.
class message_index {
 public:
  using entry = message_queue::entry;

  [[nodiscard]] bool has_any() const noexcept { return count_ != 0 || has_wild(); }
  /// Returns whether there is one with any rank or any tag.
  [[nodiscard]] bool has_wild() const noexcept { return !wild_.is_empty(); }
  /// Returns whether there may be one with this rank.
  [[nodiscard]] bool has_of(int rank) const noexcept {
    const auto place = static_cast<std::size_t>(rank);
    return has_wild() || (place < count_of_.size() && count_of_[place] != 0);
  }

  /// Adds a message, behind all that are here.
  void add(const entry& one) {
    if (is_wild(one.rank, one.tag)) {
      wild_.add(one);
      return;
    }
    if (count_ >= buckets_.size()) {
      grow();
    }
    bucket_of(one.rank, one.tag).add(one);
    ++count_;
    const auto rank = static_cast<std::size_t>(one.rank);
    count_of_.resize(std::max(count_of_.size(), rank + 1));
    ++count_of_[rank];
  }

  /// Removes a message that was added with this rank and tag.
  void remove(int rank, std::uint64_t tag, const pending_message& one) {
    if (is_wild(rank, tag)) {
      wild_.remove(one);
      return;
    }
    bucket_of(rank, tag).remove(one);
    --count_;
    --count_of_[static_cast<std::size_t>(rank)];
  }
  void remove(const entry& one) { remove(one.rank, one.tag, *one.message); }

  /// Returns the first for a rank and a tag, which may be wildcards; nothing where there is none. Of several ranks it
  /// may be that of any.
  [[nodiscard]] std::optional<entry> find(int rank, std::uint64_t tag) {
    const entry* first = wild_.find(rank, tag);
    const auto consider = [&](const entry& one) {
      if (one.fits(rank, tag) && (first == nullptr || one.message->number < first->message->number)) {
        first = &one;
      }
    };
    if (count_ != 0 && is_wild(rank, tag)) {
      for (message_queue& bucket : buckets_) {
        bucket.for_each(consider);
      }
    } else if (count_ != 0) {
      if (const entry* const found = bucket_of(rank, tag).find(rank, tag)) {
        consider(*found);
      }
    }
    return first == nullptr ? std::nullopt : std::optional(*first);
  }

 private:
  [[nodiscard]] static bool is_wild(int rank, std::uint64_t tag) noexcept { return rank < 0 || tag == any_message_tag; }

  [[nodiscard]] message_queue& bucket_of(int rank, std::uint64_t tag) {
    const std::uint64_t hash = hfcomm::detail::mix(static_cast<std::uint64_t>(rank), tag);
    return buckets_[hash & (buckets_.size() - 1)];
  }

  void grow() {
    std::vector<message_queue> before(std::max<std::size_t>(64, buckets_.size() * 2));
    before.swap(buckets_);
    for (message_queue& one : before) {
      // Messages with one rank and tag stay in their order, because they share a bucket in both.
      one.for_each([this](const entry& again) { bucket_of(again.rank, again.tag).add(again); });
    }
  }

  std::vector<message_queue> buckets_;  // a power of two, or none
  message_queue wild_;
  std::size_t count_ = 0;              // in the buckets
  std::vector<std::size_t> count_of_;  // in the buckets, by rank
};

}  // namespace hfcomm::engines
