// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <hfcomm/core/std_algorithm.hpp>
#include <hfcomm/engine/shared_memory/messages/message_endpoint.hpp>

namespace hfcomm::engines {

/// The receives that have found no offer yet, by source and tag, so that the first one for a message is found in
/// constant time, however many are open. Those with any source or any tag are searched one after the other.
class receive_index {
 public:
  using receive = message_list::iterator;

  [[nodiscard]] bool has_any() const noexcept { return count_ + wild_.size() != 0; }
  /// Returns whether a receive takes messages of more than one source or tag.
  [[nodiscard]] bool has_wild() const noexcept { return wild_.size() != 0; }
  /// Returns whether a receive may take a message of this rank.
  [[nodiscard]] bool wants_from(int source) const noexcept {
    const auto place = static_cast<std::size_t>(source);
    return wild_.size() != 0 || (place < wanted_from_.size() && wanted_from_[place] != 0);
  }

  /// Adds a receive, which was posted after all that are here.
  void add(receive one) {
    if (is_wild(*one)) {
      wild_.add(one);
      return;
    }
    if (count_ >= buckets_.size()) {
      grow();
    }
    bucket_of(*one).add(one);
    ++count_;
    const auto source = static_cast<std::size_t>(one->request->call.root);
    wanted_from_.resize(std::max(wanted_from_.size(), source + 1));
    ++wanted_from_[source];
  }

  /// Removes a receive that is here.
  void remove(const pending_message& one) {
    if (is_wild(one)) {
      wild_.remove(one);
      return;
    }
    bucket_of(one).remove(one);
    --count_;
    --wanted_from_[static_cast<std::size_t>(one.request->call.root)];
  }

  /// Returns the first receive that wants a message of `source` with `tag`; null: there is none. Valid until the next
  /// change.
  [[nodiscard]] const receive* find(int source, std::uint64_t tag) {
    const receive* const exact = buckets_.empty() ? nullptr : bucket_of(source, tag).find(source, tag);
    const receive* const wild = wild_.find(source, tag);
    return exact == nullptr || (wild != nullptr && (*wild)->number < (*exact)->number) ? wild : exact;
  }

 private:
  [[nodiscard]] static bool is_wild(const pending_message& one) noexcept {
    return one.request->call.root < 0 || one.request->call.tag == any_message_tag;
  }

  /// Receives in the order in which they were posted. Most leave it at its front.
  class queue {
   public:
    [[nodiscard]] std::size_t size() const noexcept { return receives_.size() - front_; }
    void add(receive one) { receives_.push_back(one); }

    void remove(const pending_message& one) {
      const auto place = std::find_if(begin(), receives_.end(), [&](const receive& other) { return &*other == &one; });
      if (place == begin()) {
        ++front_;
      } else {
        receives_.erase(place);
      }
      if (front_ * 2 > receives_.size()) {
        receives_.erase(receives_.begin(), begin());
        front_ = 0;
      }
    }

    [[nodiscard]] const receive* find(int source, std::uint64_t tag) {
      const auto found = std::find_if(begin(), receives_.end(), [&](const receive& one) {
        const operation& call = one->request->call;
        return (call.root < 0 || call.root == source) && (call.tag == tag || call.tag == any_message_tag);
      });
      return found == receives_.end() ? nullptr : &*found;
    }

    /// Calls `visit` with each.
    template <class Visit>
    void for_each(Visit visit) {
      std::for_each(begin(), receives_.end(), visit);
    }

   private:
    [[nodiscard]] std::vector<receive>::iterator begin() {
      return receives_.begin() + static_cast<std::ptrdiff_t>(front_);
    }

    std::vector<receive> receives_;
    std::size_t front_ = 0;  // those before it are gone
  };

  [[nodiscard]] queue& bucket_of(int source, std::uint64_t tag) {
    const std::uint64_t hash = hfcomm::detail::mix(static_cast<std::uint64_t>(source), tag);
    return buckets_[hash & (buckets_.size() - 1)];
  }
  [[nodiscard]] queue& bucket_of(const pending_message& one) {
    return bucket_of(one.request->call.root, one.request->call.tag);
  }

  void grow() {
    std::vector<queue> before = std::exchange(buckets_, {});
    buckets_.resize(std::max<std::size_t>(64, before.size() * 2));
    for (queue& one : before) {
      // Receives with one source and tag stay in their order, because they share a bucket in both.
      one.for_each([this](const receive& again) { bucket_of(*again).add(again); });
    }
  }

  std::vector<queue> buckets_;  // a power of two, or none
  queue wild_;
  std::size_t count_ = 0;                 // in the buckets
  std::vector<std::size_t> wanted_from_;  // number of receives in the buckets, by source
};

}  // namespace hfcomm::engines
