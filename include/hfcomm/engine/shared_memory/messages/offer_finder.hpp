// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <hfcomm/core/std_algorithm.hpp>
#include <hfcomm/engine/shared_memory/memory.hpp>
#include <hfcomm/engine/shared_memory/messages/message_endpoint.hpp>

namespace hfcomm::engines {

/// An offer of a message, as its receiver has found it.
struct found_offer {
  int source;
  layout::envelope* envelope;
  std::uint64_t number;
  std::uint64_t tag;
};

/// Finds the unanswered offers to a rank. Not thread-safe, but `for_each`.
class offer_finder {
 public:
  explicit offer_finder(const message_endpoint& endpoint) : endpoint_(endpoint) {}

  /// Calls `visit(envelope, number)` for each unanswered offer of `source` to this rank.
  template <class Visit>
  void for_each(int source, Visit&& visit) const {
    const auto all = endpoint_.memory().envelopes(source);
    const auto in_use = std::min<std::size_t>(endpoint_.memory().mailbox(source).in_use.load(), all.size());
    for (layout::envelope& envelope : all.first(in_use)) {
      const std::uint64_t number = envelope.offer.load();
      // Destination and answer belong to the same offer if it is still there after reading them, however long that
      // took. An unanswered offer to this rank stays until this rank answers.
      if (number != 0 && envelope.destination.load() == endpoint_.rank() &&
          envelope.answer.load() / layout::answer_kinds != number && envelope.offer.load() == number) {
        visit(envelope, number);
      }
    }
  }

  /// Returns the unanswered offers of a rank: asks and what was asked for, then the others in the order of their
  /// numbers.
  [[nodiscard]] const std::vector<found_offer>& find(int source) {
    std::uint64_t last = 0;
    found_.clear();
    for_each(source, [&](layout::envelope& envelope, std::uint64_t number) {
      if (number >= layout::again_flag) {
        found_.push_back({source, &envelope, number, envelope.tag.load()});
      } else {
        last = std::max(last, number);
      }
    });
    if (last == 0) {
      return found_;
    }
    const auto asked = static_cast<std::ptrdiff_t>(found_.size());
    // During the scan, the sender may have put an earlier message into an envelope already scanned, and a later one
    // into one not yet scanned. A second scan sees everything that it offered before the last message that was found.
    for_each(source, [&](layout::envelope& envelope, std::uint64_t number) {
      if (number <= last) {
        found_.push_back({source, &envelope, number, envelope.tag.load()});
      }
    });
    std::sort(found_.begin() + asked, found_.end(),
              [](const found_offer& one, const found_offer& other) { return one.number < other.number; });
    return found_;
  }

 private:
  const message_endpoint& endpoint_;
  std::vector<found_offer> found_;
};

}  // namespace hfcomm::engines
