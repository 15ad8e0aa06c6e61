// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <span>
#include <string>
#include <vector>

#include <hfcomm/engines/copy_bytes.hpp>
#include <hfcomm/engines/engine.hpp>
#include <hfcomm/engines/lockstep.hpp>

namespace hfcomm::engines {

/// Every rank has a part for each rank (all-to-all), or the root has (scatter), or each has one for the root (gather).
/// A rank's slot is divided into windows, one for each rank that gets something from it; each receiver reads its
/// windows alone. Parts that fit into the slot all together lie there one behind the other and take one step.
///
/// Where the lengths are not part of the signature, the first step's slot begins with them: the bytes that this rank
/// sends to each rank, then those that it expects from each. Every rank compares all of them, so where two do not fit
/// everyone throws the same error and nothing moves.
class deal {
 public:
  explicit deal(lockstep& steps) : steps_(steps) {}

  void run(const operation& call, const parcels& mine, receiver& out) {
    steps_.begin(call);
    const bool listed = call.content != payload::buffer;
    const auto me = static_cast<std::size_t>(steps_.rank());
    const auto ranks = static_cast<std::size_t>(steps_.size());
    if (!listed && call.bytes * (ranks - 1) <= layout::inline_bytes) {
      in_cells(call, mine, out);
      return;
    }
    const std::size_t header = listed ? 2 * ranks * sizeof(std::uint64_t) : 0;
    const std::size_t capacity = std::min(steps_.sizes().chunk_bytes(ranks - 1), steps_.sizes().slot_bytes - header);

    sent_.assign(ranks * ranks, 0);
    for (std::size_t to = 0; to < ranks; ++to) {
      sent_[me * ranks + to] = sends(call, me, to) ? mine.part_for(call, to).size() : 0;
    }
    if (listed) {
      write_lists(mine);
    }
    const windows my_windows(row(me), me, capacity);
    fill(call, mine, my_windows, 0, header);
    steps_.publish(call);
    steps_.wait_all(call);
    steps_.check(call);

    const std::uint64_t first = steps_.step();
    for (std::size_t from = 0; from < ranks; ++from) {
      for (std::size_t to = 0; from != me && to < ranks; ++to) {
        sent_[from * ranks + to] = listed ? number_at(from, first, to) : sends(call, from, to) ? call.bytes : 0;
      }
    }
    if (listed) {
      check_expectations(call, first);
    }
    std::uint64_t rounds = 1;
    sources_.clear();
    for (std::size_t from = 0; from < ranks; ++from) {
      sources_.emplace_back(row(from), from, capacity);
      rounds = std::max(rounds, sources_.back().rounds());
    }

    // What the receiver throws must not leave the peers alone in the middle: go through the steps, then throw.
    std::exception_ptr problem;
    for (std::uint64_t round = 0; round < rounds; ++round) {
      const std::uint64_t step = steps_.step();
      if (round + 1 < rounds) {
        fill(call, mine, my_windows, round + 1, header);
        steps_.publish(call);
      }
      if (!problem) {
        try {
          deliver(call, mine, round, step, header, out);
        } catch (...) {
          problem = std::current_exception();
        }
      }
      if (round + 1 < rounds) {
        steps_.wait_all(call);
      }
    }
    if (problem) {
      std::rethrow_exception(problem);
    }
  }

 private:
  /// Equal parts that fit into the cells.
  void in_cells(const operation& call, const parcels& mine, receiver& out) {
    const auto me = static_cast<std::size_t>(steps_.rank());
    const auto ranks = static_cast<std::size_t>(steps_.size());
    const auto bytes = static_cast<std::size_t>(call.bytes);
    std::byte* const cell = steps_.cell(steps_.rank(), steps_.next()).payload;
    for (std::size_t to = 0; bytes != 0 && to < ranks; ++to) {
      if (to != me && sends(call, me, to)) {
        std::memcpy(cell + (to - (to > me ? 1 : 0)) * bytes, mine.part_for(call, to).data(), bytes);
      }
    }
    steps_.publish(call);
    steps_.wait_all(call);
    steps_.check(call);
    for (std::size_t from = 0; from < ranks; ++from) {
      if (!sends(call, from, me)) {
        continue;
      }
      const std::byte* theirs = steps_.cell(static_cast<int>(from), steps_.step()).payload;
      out.receive(static_cast<int>(from),
                  from == me ? mine.part_for(call, me) : std::span(theirs + (me - (me > from ? 1 : 0)) * bytes, bytes),
                  0, bytes);
    }
  }

  /// Where a rank's slot has the part for each other rank. Everyone calculates it from the lengths.
  class windows {
   public:
    windows(std::span<const std::uint64_t> lengths, std::size_t owner, std::size_t capacity)
        : lengths_(lengths), owner_(owner) {
      std::uint64_t total = 0;
      std::size_t parts = 0;
      for (std::size_t to = 0; to < lengths.size(); ++to) {
        if (to != owner && lengths[to] != 0) {
          total += lengths[to];
          largest_ = std::max(largest_, lengths[to]);
          ++parts;
        }
      }
      // 16 bytes are left for each of 1024 ranks even in the smallest slot.
      window_ = total <= capacity ? 0 : capacity / parts / 16 * 16;
    }

    [[nodiscard]] std::uint64_t rounds() const { return window_ == 0 ? 1 : (largest_ + window_ - 1) / window_; }
    [[nodiscard]] std::size_t place(std::size_t to) const {
      std::size_t place = 0;
      for (std::size_t before = 0; before < to; ++before) {
        if (before != owner_ && lengths_[before] != 0) {
          place += window_ == 0 ? static_cast<std::size_t>(lengths_[before]) : window_;
        }
      }
      return place;
    }
    /// What round `round` carries of the part for `to`.
    [[nodiscard]] std::pair<std::uint64_t, std::size_t> piece(std::size_t to, std::uint64_t round) const {
      const std::uint64_t length = lengths_[to];
      if (window_ == 0) {
        return {0, round == 0 ? static_cast<std::size_t>(length) : 0};
      }
      const std::uint64_t offset = std::min(round * window_, length);
      return {offset, static_cast<std::size_t>(std::min<std::uint64_t>(window_, length - offset))};
    }

   private:
    std::span<const std::uint64_t> lengths_;
    std::size_t owner_;
    std::size_t window_ = 0;  // 0: everything at once
    std::uint64_t largest_ = 0;
  };

  [[nodiscard]] static bool sends(const operation& call, std::size_t from, std::size_t to) {
    const auto root = static_cast<std::size_t>(call.root);
    return call.pattern == movement::to_all || (call.pattern == movement::from_root && from == root) ||
           (call.pattern == movement::to_root && to == root);
  }

  [[nodiscard]] std::span<const std::uint64_t> row(std::size_t from) const {
    const auto ranks = static_cast<std::size_t>(steps_.size());
    return std::span(sent_).subspan(from * ranks, ranks);
  }

  void write_lists(const parcels& mine) {
    const auto ranks = static_cast<std::size_t>(steps_.size());
    const auto lengths = row(static_cast<std::size_t>(steps_.rank()));
    std::byte* slot = steps_.slot(steps_.rank(), steps_.next());
    std::memcpy(slot, lengths.data(), lengths.size_bytes());
    expected_.assign(ranks, anything);
    std::copy(mine.expected.begin(), mine.expected.end(), expected_.begin());
    std::memcpy(slot + lengths.size_bytes(), expected_.data(), ranks * sizeof(std::uint64_t));
  }

  [[nodiscard]] std::uint64_t number_at(std::size_t rank, std::uint64_t step, std::size_t index) const {
    std::uint64_t number = 0;
    std::memcpy(&number, steps_.slot(static_cast<int>(rank), step) + index * sizeof(number), sizeof(number));
    return number;
  }

  void check_expectations(const operation& call, std::uint64_t first) const {
    const auto ranks = static_cast<std::size_t>(steps_.size());
    for (std::size_t to = 0; to < ranks; ++to) {
      for (std::size_t from = 0; from < ranks; ++from) {
        const std::uint64_t wanted = number_at(to, first, ranks + from);
        const std::uint64_t coming = sent_[from * ranks + to];
        if (wanted == coming || wanted == anything || !sends(call, from, to)) {
          continue;
        }
        const auto count = [&](std::uint64_t bytes) { return elements_text(call, bytes); };
        throw mismatch_error(steps_.context(call),
                             "rank " + std::to_string(from) + " sends " + count(coming) + " to rank " +
                                 std::to_string(to) + ", which expects " + count(wanted) + " from it: rank " +
                                 std::to_string(from) + " called " + steps_.matching_call(static_cast<int>(from)) +
                                 ", rank " + std::to_string(to) + " called " +
                                 steps_.matching_call(static_cast<int>(to)),
                             static_cast<int>(from), static_cast<int>(to));
      }
    }
  }

  void fill(const operation& call, const parcels& mine, const windows& layout, std::uint64_t round,
            std::size_t header) {
    const auto me = static_cast<std::size_t>(steps_.rank());
    std::byte* to_all = steps_.slot(steps_.rank(), steps_.next()) + header;
    const auto ranks = static_cast<std::size_t>(steps_.size());
    for (std::size_t to = 0; to < ranks; ++to) {
      const auto [offset, count] = layout.piece(to, round);
      if (to != me && count != 0) {
        detail::copy_bytes(to_all + layout.place(to), mine.part_for(call, to).data() + offset, count);
      }
    }
  }

  void deliver(const operation& call, const parcels& mine, std::uint64_t round, std::uint64_t step, std::size_t header,
               receiver& out) {
    const auto ranks = static_cast<std::size_t>(steps_.size());
    const auto me = static_cast<std::size_t>(steps_.rank());
    // Starting behind oneself spreads the readers over the sources.
    for (std::size_t turn = 0; turn < ranks; ++turn) {
      const std::size_t from = (me + turn) % ranks;
      const std::uint64_t total = sent_[from * ranks + me];
      if (!sends(call, from, me)) {
        continue;
      }
      if (from == me) {
        if (round == 0) {
          out.receive(steps_.rank(), mine.part_for(call, me), 0, total);
        }
        continue;
      }
      const auto [offset, count] = sources_[from].piece(me, round);
      if (count == 0 && round != 0) {
        continue;
      }
      const std::byte* theirs = steps_.slot(static_cast<int>(from), step) + header;
      out.receive(static_cast<int>(from), {theirs + sources_[from].place(me), count}, offset, total);
    }
  }

  static constexpr std::uint64_t anything = ~std::uint64_t{0};

  lockstep& steps_;
  std::vector<std::uint64_t> sent_;      // scratch: from each rank (row) to each rank
  std::vector<std::uint64_t> expected_;  // scratch
  std::vector<windows> sources_;         // scratch
};

}  // namespace hfcomm::engines
