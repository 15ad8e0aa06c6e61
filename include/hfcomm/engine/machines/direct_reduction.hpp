// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include <hfcomm/core/element_type.hpp>
#include <hfcomm/core/plain_list.hpp>
#include <hfcomm/engine/machines/direct_transfers.hpp>
#include <hfcomm/engine/operation.hpp>

namespace hfcomm::engines {

/// The algorithm that reduces long buffers by direct exchange. Each rank owns a slice of the buffer: the others send it
/// theirs, chunk by chunk, it reduces each chunk, and sends the results to the ranks that receive. So each rank sends
/// 2 (n - 1) / n buffers for an all_reduce among n, the fewest possible, and every bit is what one rank would get that
/// had all buffers. A chunk leaves only when the owner has sent the result of an earlier one.
class direct_reduction {
 public:
  explicit direct_reduction(direct_transfers& transfers) : transfers_(transfers) {}

  /// The buffers of this rank.
  struct buffers {
    std::span<const std::byte> in;
    std::span<const std::uint64_t> slices;  ///< The bytes of each rank's slice.
    std::span<std::byte> own;               ///< Where the own slice's result goes; empty where this rank only sends it.
    std::span<std::byte> out;               ///< Where all results go; empty where this rank gets no others.
    int only_root = -1;                     ///< The one rank to which the owners send results; -1: any.
    bool delivers = true;                   ///< The owners send results.
  };

  /// Makes room. Throws std::bad_alloc; then nothing has been sent.
  void prepare(const buffers& mine, std::size_t width) {
    const auto ranks = static_cast<std::size_t>(transfers_.size());
    const std::size_t largest = *std::max_element(mine.slices.begin(), mine.slices.end());
    chunk_ = std::max(std::min(most_chunk, most_scratch / (window * ranks)) / width, std::size_t{1}) * width;
    chunk_ = std::min(chunk_, std::max(largest, width));
    begins_.assign(1, 0);
    for (const std::uint64_t bytes : mine.slices) {
      begins_.push_back(begins_.back() + static_cast<std::size_t>(bytes));
    }
    peers_.assign(ranks, peer());
    inputs_.reserve(ranks);
    factors_.assign(ranks, 1);
    scratch_.resize(std::max(scratch_.size(), window * ranks * chunk_));  // the own place is for results
    transfers_.reserve(ranks * (16 * window + 4));
  }

  /// Does an operation that has begun, after `prepare`.
  void run(const operation& call, const buffers& mine) {
    mine_ = &mine;
    reduced_ = 0;
    have_all_come_ = false;
    own_head_ = transfers_.header_for(call);
    factors_[index(rank())] = call.factor;
    const std::size_t own_chunks = chunks_of(rank());
    for (int turn = 1; turn < transfers_.size(); ++turn) {
      const int other = (rank() + turn) % transfers_.size();
      peer& its = peers_[index(other)];
      its.head = transfers_.receive(other, std::as_writable_bytes(std::span(&its.their_head, 1)));
      post(other);
    }
    for (int turn = 1; turn < transfers_.size(); ++turn) {
      const int other = (rank() + turn) % transfers_.size();
      transfers_.send(other, std::as_bytes(std::span(&own_head_, 1)));
      send_inputs(other);
    }
    transfers_.run(call, [&] {
      bool is_over = true;
      for (int other = 0; other < transfers_.size(); ++other) {
        is_over = (other == rank() || take(other)) && is_over;
      }
      have_all_come_ = have_all_come();
      while (reduced_ < own_chunks && has_inputs(reduced_) && has_room(reduced_)) {
        reduce(call, reduced_);
        ++reduced_;
      }
      for (int other = 0; other < transfers_.size(); ++other) {
        if (other != rank()) {
          post(other);
          send_inputs(other);
        }
      }
      return is_over && reduced_ == own_chunks && all_sent();
    });
  }

 private:
  using channel = direct_transfers::channel;

  static constexpr std::size_t window = 4;  // chunks of a slice under way
  static constexpr std::size_t most_chunk = std::size_t{256} << 10;
  static constexpr std::size_t most_scratch = std::size_t{32} << 20;

  /// Another rank, as this one exchanges chunks with it.
  struct peer {
    link_transfer* head = nullptr;  // which has not been taken
    direct_header their_head;
    bool has_come = false;
    link_transfer* inputs[window] = {};            // of the own slice, that come; by chunk modulo `window`
    link_transfer* results[window] = {};           // of its slice, that come
    link_transfer* sent_inputs_now[window] = {};   // that go out, where no results tell that they have come
    link_transfer* sent_results_now[window] = {};  // that go out of a place in `scratch`
    std::size_t posted_inputs = 0;
    std::size_t taken_inputs = 0;
    std::size_t posted_results = 0;
    std::size_t taken_results = 0;
    std::size_t sent_inputs = 0;  // of its slice
  };

  [[nodiscard]] static std::size_t index(int rank) noexcept { return static_cast<std::size_t>(rank); }
  [[nodiscard]] int rank() const noexcept { return transfers_.rank(); }
  [[nodiscard]] std::size_t slice_bytes(int owner) const noexcept {
    return begins_[index(owner) + 1] - begins_[index(owner)];
  }
  [[nodiscard]] std::size_t chunks_of(int owner) const noexcept { return (slice_bytes(owner) + chunk_ - 1) / chunk_; }
  [[nodiscard]] std::size_t length(int owner, std::size_t chunk) const noexcept {
    return std::min(chunk_, slice_bytes(owner) - chunk * chunk_);
  }
  [[nodiscard]] std::byte* scratch(int other, std::size_t chunk) noexcept {
    return &scratch_[(index(other) * window + chunk % window) * chunk_];
  }
  [[nodiscard]] bool gets_results(int receiver) const noexcept {
    return mine_->delivers && (mine_->only_root < 0 || mine_->only_root == receiver);
  }
  /// Returns whether results of `owner` come to this rank.
  [[nodiscard]] bool gets_results_of(int owner) const noexcept { return owner != rank() && gets_results(rank()); }

  /// Posts receives of another rank's chunks of the own slice, and of results of its slice.
  void post(int other) noexcept {
    peer& its = peers_[index(other)];
    for (; its.posted_inputs < std::min(chunks_of(rank()), reduced_ + window); ++its.posted_inputs) {
      const std::size_t chunk = its.posted_inputs;
      its.inputs[chunk % window] =
          transfers_.receive(other, {scratch(other, chunk), length(rank(), chunk)}, channel::first);
    }
    if (have_all_come_ && gets_results_of(other)) {
      for (; its.posted_results < std::min(chunks_of(other), its.taken_results + window); ++its.posted_results) {
        const std::size_t chunk = its.posted_results;
        its.results[chunk % window] = transfers_.receive(
            other, mine_->out.subspan(begins_[index(other)] + chunk * chunk_, length(other, chunk)), channel::second);
      }
    }
  }

  /// Sends chunks of another rank's slice: of those whose results come here, not too many ahead of the results.
  void send_inputs(int other) noexcept {
    peer& its = peers_[index(other)];
    const auto may_send = [&](std::size_t chunk) {
      return !its.has_come            ? chunk == 0
             : gets_results_of(other) ? chunk < its.taken_results + window
                                      : its.sent_inputs_now[chunk % window] == nullptr;
    };
    for (; its.sent_inputs < chunks_of(other) && may_send(its.sent_inputs); ++its.sent_inputs) {
      const std::size_t chunk = its.sent_inputs;
      link_transfer* const one = transfers_.send(
          other, mine_->in.subspan(begins_[index(other)] + chunk * chunk_, length(other, chunk)), channel::first);
      its.sent_inputs_now[chunk % window] = gets_results_of(other) ? nullptr : one;
    }
  }

  /// Takes what has come of another rank. Returns whether nothing more will.
  [[nodiscard]] bool take(int other) noexcept {
    peer& its = peers_[index(other)];
    if (its.head != nullptr && is_done(its.head) && transfers_.fits(its.their_head)) {
      its.head = nullptr;
      its.has_come = true;
      factors_[index(other)] = its.their_head.factor;
    }
    while (its.taken_inputs < its.posted_inputs && is_done(its.inputs[its.taken_inputs % window])) {
      its.inputs[its.taken_inputs++ % window] = nullptr;
    }
    while (its.taken_results < its.posted_results && is_done(its.results[its.taken_results % window])) {
      its.results[its.taken_results++ % window] = nullptr;
    }
    for (auto* sent : {its.sent_inputs_now, its.sent_results_now}) {
      for (std::size_t place = 0; place < window; ++place) {
        sent[place] = sent[place] != nullptr && is_done(sent[place]) ? nullptr : sent[place];
      }
    }
    return its.has_come && its.taken_inputs == chunks_of(rank()) &&
           (!gets_results_of(other) || its.taken_results == chunks_of(other));
  }
  [[nodiscard]] static bool is_done(const link_transfer* one) noexcept {
    return one->done.load(std::memory_order_acquire);
  }

  [[nodiscard]] bool have_all_come() const noexcept {
    for (int other = 0; other < transfers_.size(); ++other) {
      if (other != rank() && !peers_[index(other)].has_come) {
        return false;
      }
    }
    return true;
  }
  [[nodiscard]] bool has_inputs(std::size_t chunk) const noexcept {
    for (int other = 0; other < transfers_.size(); ++other) {
      if (other != rank() && peers_[index(other)].taken_inputs <= chunk) {
        return false;
      }
    }
    return have_all_come_;
  }

  /// Returns whether the place of a result is free.
  [[nodiscard]] bool has_room(std::size_t chunk) const noexcept {
    return std::all_of(peers_.begin(), peers_.end(),
                       [&](const peer& its) { return its.sent_results_now[chunk % window] == nullptr; });
  }

  /// Reduces a chunk of the own slice, and sends the result.
  void reduce(const operation& call, std::size_t chunk) noexcept {
    const std::size_t begin = begins_[index(rank())] + chunk * chunk_;
    const std::size_t bytes = length(rank(), chunk);
    inputs_.clear();
    for (int source = 0; source < transfers_.size(); ++source) {
      inputs_.push_back(source == rank() ? mine_->in.data() + begin : scratch(source, chunk));
    }
    const bool keeps = !mine_->own.empty();
    const std::span<std::byte> to =
        keeps ? mine_->own.subspan(chunk * chunk_, bytes) : std::span(scratch(rank(), chunk), bytes);
    const bool has_factors = call.op == reduce_kind::premultiplied_sum;
    hfcomm::detail::run_kernel(call.kernel, call.op, inputs_, to.data(), bytes / size_of(call.element),
                               has_factors ? std::span<const double>(factors_) : std::span<const double>());
    for (int turn = 1; turn < transfers_.size(); ++turn) {
      if (const int other = (rank() + turn) % transfers_.size(); gets_results(other)) {
        link_transfer* const one = transfers_.send(other, to, channel::second);
        peers_[index(other)].sent_results_now[chunk % window] = keeps ? nullptr : one;
      }
    }
  }

  [[nodiscard]] bool all_sent() const noexcept {
    for (int other = 0; other < transfers_.size(); ++other) {
      if (other != rank() && peers_[index(other)].sent_inputs != chunks_of(other)) {
        return false;
      }
    }
    return true;
  }

  direct_transfers& transfers_;
  const buffers* mine_ = nullptr;
  std::size_t chunk_ = 0;                           // bytes
  hfcomm::detail::plain_list<std::size_t> begins_;  // of the slices, and the end of the last one
  hfcomm::detail::plain_list<peer> peers_;          // by rank
  hfcomm::detail::plain_list<const std::byte*> inputs_;
  hfcomm::detail::plain_list<double> factors_;  // by rank
  hfcomm::detail::plain_list<std::byte> scratch_;
  std::size_t reduced_ = 0;  // chunks of the own slice
  bool have_all_come_ = false;
  direct_header own_head_;
};

}  // namespace hfcomm::engines
