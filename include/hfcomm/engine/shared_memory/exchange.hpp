// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <span>
#include <vector>

#include <hfcomm/engine/host_engine.hpp>
#include <hfcomm/engine/shared_memory/kernel_reads.hpp>
#include <hfcomm/engine/shared_memory/lockstep.hpp>
#include <hfcomm/engine/shared_memory/peer_memory.hpp>
#include <hfcomm/engine/shared_memory/tuner.hpp>

namespace hfcomm::engines {

/// The algorithm that moves every contribution to every rank that receives: broadcast, gather and all-gather. Small
/// contributions travel in the cell. Larger ones pass chunk by chunk through the slot; the next chunk is filled while
/// the last one is read. A contribution in its rank's heap is read in place, and so is any other one where the kernel
/// copies (see transfer_way). A rank that leaves early has its contribution in its cell or its small slot.
class exchange {
 public:
  exchange(lockstep& steps, peer_memory& peers, kernel_reads& reads, tuner& ways)
      : steps_(steps), peers_(peers), reads_(reads), ways_(ways) {
    contributions_.reserve(static_cast<std::size_t>(size()));
    lengths_.reserve(static_cast<std::size_t>(size()));
  }

  void run(const operation& call, std::span<const std::byte> contribution, receiver& out) {
    if (!call.contributes(rank())) {
      contribution = {};
    }
    const bool is_tuned = call.content == payload::buffer && call.bytes > layout::small_slot_bytes;
    const bool leaves = steps_.may_leave(call) && contribution.size() <= layout::small_slot_bytes;
    steps_.begin(call, leaves);
    const bool is_published = leaves && !is_tuned;
    if (is_published && leave_early(call, contribution, out)) {
      return;
    }
    way_ = {};
    if (is_tuned) {
      way_ = ways_.begin(tuned(call), static_cast<std::size_t>(call.bytes));
    }
    // An object is best decoded in one piece.
    const std::size_t chunk =
        call.content == payload::object ? steps_.sizes().slot_bytes : steps_.sizes().chunk_bytes(1, way_.piece);
    const bool by_kernel = way_.medium == transfer_medium::kernel;
    const bool in_cell = contribution.size() <= layout::inline_bytes;
    const bool offered = is_read_by_others(call, rank());
    const std::uint64_t place =
        offered && contribution.size() > layout::least_in_heap ? peers_.place_to_read(contribution) : 0;
    const bool is_ordinary = offered && place == 0;
    const bool staged = is_ordinary && !by_kernel;
    const int reader = call.pattern == movement::to_root ? call.root : lockstep::everyone;
    if (!is_published) {
      if (staged) {
        fill(contribution, 0, chunk, in_cell, reader);
      }
      if (!in_cell) {
        layout::contribution_place{
            .in_segment = place, .address = reinterpret_cast<std::uintptr_t>(contribution.data()), .is_small = 0}
            .put_into(steps_.cell(rank(), steps_.next()));
      }
      if (is_tuned) {
        ways_.report();
      }
      steps_.publish(call);
      if (leaves) {
        steps_.settle_earlier(call);
      }
    }
    steps_.wait_all(call);
    steps_.check(call);

    const bool reads_heaps = read_lengths(call);
    if (is_tuned) {
      ways_.agree(!reads_heaps);
    }
    const bool receives = call.receives(rank());
    // An exception of the receiver must not end this rank's steps, for which the peers wait: take all, then throw.
    std::exception_ptr problem;
    const auto receive = [&](int source, std::span<const std::byte> piece, std::uint64_t offset, std::uint64_t total) {
      if (receives && !problem) {
        try {
          out.receive(source, piece, offset, total);
        } catch (...) {
          problem = std::current_exception();
        }
      }
    };
    // This rank's own contribution comes chunk by chunk, too, while filling the slot has it in the cache. Exceptions
    // are an object, which is best decoded in one piece, and a contribution that goes through no slot.
    const bool piecewise = call.content != payload::object && staged;
    const auto receive_own = [&](std::uint64_t offset) {
      const std::size_t left = contribution.size() - std::min<std::size_t>(offset, contribution.size());
      if (call.contributes(rank()) && (offset == 0 || (piecewise && left != 0))) {
        receive(rank(), contribution.subspan(contribution.size() - left, piecewise ? std::min(chunk, left) : left),
                offset, contribution.size());
      }
    };
    if (receives && call.content == payload::uneven) {
      try {
        out.expect(lengths(call, contribution.size()));
      } catch (...) {
        problem = std::current_exception();
      }
    }
    receive_own(0);
    if (by_kernel) {
      if (read_by_kernel(call, out, receive, problem)) {
        end(is_tuned, problem, leaves);
        return;
      }
      ways_.stop_reading();
      if (is_ordinary) {
        fill(contribution, 0, chunk, false, reader);
      }
      steps_.publish(call);
      steps_.wait_all(call);
    }
    for (std::uint64_t offset = 0;; offset += chunk) {
      const std::uint64_t step = steps_.step();
      const bool more = offset + chunk < longest_;
      if (more) {
        steps_.wait_all(call, step - 1);  // until the slot of the next step is free
        if (is_ordinary) {
          fill(contribution, offset + chunk, chunk, false, reader);
        }
        steps_.publish(call);
        receive_own(offset + chunk);
      }
      // Each rank starts with the one behind it, which spreads the readers over the sources.
      for (int turn = 1; turn < size(); ++turn) {
        const int source = (rank() + turn) % size();
        const contribution_of& theirs = contributions_[static_cast<std::size_t>(source)];
        if (!is_read_by_others(call, source)) {
          continue;
        }
        if (theirs.place.in_segment != 0) {
          if (offset == 0) {
            receive(source, {peers_.at(theirs.place.in_segment), static_cast<std::size_t>(theirs.bytes)}, 0,
                    theirs.bytes);
          }
        } else if (offset == 0 || offset < theirs.bytes) {
          const std::byte* from = theirs.published_in(steps_, source, step);
          receive(source, {from, std::min<std::uint64_t>(chunk, theirs.bytes - offset)}, offset, theirs.bytes);
        }
      }
      if (!more) {
        break;
      }
      // Ranks that this one does not read may be two steps behind.
      if (call.pattern == movement::from_root) {
        steps_.wait_for_unchecked(call, call.root);
      } else if (receives) {
        steps_.wait_all(call);
      }
    }
    steps_.wait_all(call);
    if (reads_heaps) {  // no rank may change its buffer before all have read it
      steps_.throw_if_broken(call);
      steps_.publish(call);
      steps_.wait_all(call);
    }
    end(is_tuned, problem, leaves);
  }

 private:
  /// Ends an operation whose steps are all taken.
  void end(bool is_tuned, const std::exception_ptr& problem, bool leaves) {
    if (is_tuned) {
      ways_.end();
    }
    if (problem) {
      std::rethrow_exception(problem);
    }
    if (leaves) {
      steps_.finish();
    }
  }

  struct contribution_of {
    std::uint64_t bytes = 0;
    layout::contribution_place place;

    [[nodiscard]] bool is_long() const noexcept { return bytes > layout::inline_bytes && place.is_small == 0; }
    [[nodiscard]] const std::byte* published_in(const lockstep& steps, int source, std::uint64_t step) const noexcept {
      return is_long()                       ? steps.slot(source, step)
             : bytes <= layout::inline_bytes ? steps.cell(source, step).payload
                                             : steps.small_slot(source, step);
    }
  };

  /// Gives this rank's contribution, or takes the root's, without waiting for other ranks. Returns false where the root
  /// has a longer one: then the step is published, and the operation goes on with all ranks.
  bool leave_early(const operation& call, std::span<const std::byte> contribution, receiver& out) {
    const bool in_cell = contribution.size() <= layout::inline_bytes;
    layout::flag_cell& mine = steps_.cell(rank(), steps_.next());
    std::byte* const to = in_cell ? mine.payload : steps_.small_slot(rank(), steps_.next());
    if (to != contribution.data() && !contribution.empty()) {  // staging_memory() may have been used
      std::memcpy(to, contribution.data(), contribution.size());
    }
    if (!in_cell) {
      layout::contribution_place{.in_segment = 0, .address = 0, .is_small = 1}.put_into(mine);
    }
    steps_.publish(call);
    if (call.receives(rank())) {
      steps_.wait_for(call, call.root);
      const contribution_of theirs = read_contribution(call.root);
      if (theirs.is_long()) {
        steps_.settle_earlier(call);
        return false;
      }
      if (call.content == payload::uneven) {
        contributions_.assign(static_cast<std::size_t>(size()), {});
        contributions_[static_cast<std::size_t>(call.root)] = theirs;
        out.expect(lengths(call, 0));
      }
      const std::byte* from = theirs.published_in(steps_, call.root, steps_.step());
      out.receive(call.root, {from, static_cast<std::size_t>(theirs.bytes)}, 0, theirs.bytes);
    }
    steps_.finish();
    return true;
  }

  [[nodiscard]] contribution_of read_contribution(int source) const {
    const layout::flag_cell& cell = steps_.cell(source, steps_.step());
    contribution_of theirs{.bytes = cell.bytes.load(std::memory_order_relaxed), .place = {}};
    if (theirs.bytes > layout::inline_bytes && !steps_.sizes().spans_machines()) {
      theirs.place = layout::contribution_place::of(cell);
    }
    return theirs;
  }

  [[nodiscard]] static tuned_operation tuned(const operation& call) noexcept {
    return call.pattern == movement::from_root ? tuned_operation::broadcast
           : call.pattern == movement::to_root ? tuned_operation::gather
                                               : tuned_operation::all_gather;
  }

  /// Lets the kernel copy what this rank receives, but what lies in heaps. Returns false, on all ranks, where one of
  /// them could not read: some memory only its owner can read. Pieces that came by then may be received once more.
  template <class Receive>
  [[nodiscard]] bool read_by_kernel(const operation& call, receiver& out, const Receive& receive,
                                    std::exception_ptr& problem) {
    bool has_read_all = true;
    for (int turn = 1; call.receives(rank()) && turn < size(); ++turn) {
      const int source = (rank() + turn) % size();
      const contribution_of& theirs = contributions_[static_cast<std::size_t>(source)];
      if (!is_read_by_others(call, source)) {
        continue;
      }
      if (theirs.place.in_segment != 0) {
        receive(source, {peers_.at(theirs.place.in_segment), static_cast<std::size_t>(theirs.bytes)}, 0, theirs.bytes);
      } else if (has_read_all && !problem) {
        try {
          has_read_all = reads_.receive(source, theirs.place.address, theirs.bytes, out);
        } catch (...) {
          problem = std::current_exception();
        }
      }
    }
    return reads_.have_all_read(call, has_read_all);
  }

  [[nodiscard]] int rank() const noexcept { return steps_.rank(); }
  [[nodiscard]] int size() const noexcept { return steps_.size(); }

  /// Returns whether other ranks read the contribution of `source`. The one receiver's own goes through no slot.
  [[nodiscard]] static bool is_read_by_others(const operation& call, int source) {
    return call.contributes(source) && !(call.pattern == movement::to_root && source == call.root);
  }

  /// Reads the length and place of each contribution from the cells. Returns whether one of them lies in a heap.
  bool read_lengths(const operation& call) {
    bool reads_heaps = false;
    longest_ = 0;
    contributions_.assign(static_cast<std::size_t>(size()), {});
    for (int source = 0; source < size(); ++source) {
      if (!is_read_by_others(call, source)) {
        continue;
      }
      auto& theirs = contributions_[static_cast<std::size_t>(source)];
      theirs = read_contribution(source);
      reads_heaps = reads_heaps || theirs.place.in_segment != 0;
      longest_ = std::max(longest_, theirs.place.in_segment != 0 ? 0 : theirs.bytes);
    }
    return reads_heaps;
  }

  /// Returns the length of each rank's contribution; 0 where it has none.
  [[nodiscard]] std::span<const std::uint64_t> lengths(const operation& call, std::uint64_t own) {
    lengths_.assign(contributions_.size(), 0);
    for (std::size_t source = 0; source < lengths_.size(); ++source) {
      lengths_[source] = contributions_[source].bytes;
    }
    lengths_[static_cast<std::size_t>(rank())] = call.contributes(rank()) ? own : 0;
    return lengths_;
  }

  /// Copies this rank's next chunk into its cell or slot.
  void fill(std::span<const std::byte> contribution, std::uint64_t offset, std::size_t chunk, bool in_cell,
            int reader) {
    if (offset < contribution.size()) {
      const std::size_t count = std::min<std::size_t>(contribution.size() - offset, chunk);
      std::byte* to = in_cell ? steps_.cell(rank(), steps_.next()).payload : steps_.slot(rank(), steps_.next());
      if (to != contribution.data()) {  // staging_memory() may have been used
        way_.copy(to, contribution.data() + offset, count);
      }
      if (!in_cell) {
        steps_.note_part(0, count, reader);
      }
    }
  }

  lockstep& steps_;
  peer_memory& peers_;
  kernel_reads& reads_;
  tuner& ways_;
  transfer_way way_;                            // of the operation under way
  std::vector<contribution_of> contributions_;  // scratch
  std::vector<std::uint64_t> lengths_;          // scratch
  std::uint64_t longest_ = 0;                   // of those that go through slots
};

}  // namespace hfcomm::engines
