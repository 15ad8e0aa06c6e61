// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <hfcomm/core/plain_list.hpp>
#include <hfcomm/core/std_algorithm.hpp>
#include <hfcomm/engine/host_engine.hpp>
#include <hfcomm/engine/shared_memory/operations/careful_receiver.hpp>
#include <hfcomm/engine/shared_memory/operations/short_contribution.hpp>
#include <hfcomm/engine/shared_memory/steps.hpp>
#include <hfcomm/engine/shared_memory/ways.hpp>

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
    way_ = ways_.begin(tuned(call), is_tuned ? static_cast<std::size_t>(call.bytes) : 0);
    // An object is best decoded in one piece.
    chunk_ = call.content == payload::object ? steps_.sizes().slot_bytes : steps_.sizes().chunk_bytes(1, way_.piece);
    reader_ = call.pattern == movement::to_root ? call.root : lockstep::everyone;
    const own_contribution mine = prepare(call, contribution);
    if (!is_published) {
      publish(call, mine);
      if (leaves) {
        steps_.settle_earlier(call);
      }
    }
    steps_.wait_all(call);
    steps_.check(call);

    const bool reads_heaps = read_lengths(call);
    ways_.agree(!reads_heaps);
    careful_receiver careful(out);
    if (call.receives(rank()) && call.content == payload::uneven) {
      careful.attempt([&](receiver& to) { to.expect(lengths(call, contribution.size())); });
    }
    receive_own(call, mine, 0, careful);
    const bool by_kernel = way_.medium == transfer_medium::kernel;
    if (!by_kernel || !read_by_kernel(call, careful)) {
      if (by_kernel) {
        ways_.stop_reading();
        if (mine.is_ordinary) {
          fill(mine, 0);
        }
        steps_.publish(call);
        steps_.wait_all(call);
      }
      pass_chunks(call, mine, careful);
      if (reads_heaps) {  // no rank may change its buffer before all have read it
        steps_.throw_if_broken(call);
        steps_.publish(call);
        steps_.wait_all(call);
      }
    }
    ways_.end();
    careful.rethrow();
    if (leaves) {
      steps_.finish();
    }
  }

 private:
  /// This rank's contribution, and how others get it.
  struct own_contribution {
    std::span<const std::byte> bytes;
    std::uint64_t place = 0;   // in the segment, where others read it in place
    bool is_ordinary = false;  // others read it, but not in a heap
    bool is_staged = false;    // it goes through this rank's cell or slot
    bool is_in_cell = false;
  };

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

  /// Returns how others get this rank's contribution. What they read in a heap is there then.
  [[nodiscard]] own_contribution prepare(const operation& call, std::span<const std::byte> contribution) {
    own_contribution mine{.bytes = contribution, .is_in_cell = contribution.size() <= layout::inline_bytes};
    if (is_read_by_others(call, rank())) {
      mine.place = contribution.size() > layout::least_in_heap ? peers_.place_to_read(contribution) : 0;
      mine.is_ordinary = mine.place == 0;
      mine.is_staged = mine.is_ordinary && way_.medium != transfer_medium::kernel;
    }
    return mine;
  }

  /// Publishes the first step: this rank's first chunk, or where its contribution is.
  void publish(const operation& call, const own_contribution& mine) {
    if (mine.is_staged) {
      fill(mine, 0);
    }
    if (!mine.is_in_cell) {
      layout::contribution_place{
          .in_segment = mine.place, .address = reinterpret_cast<std::uintptr_t>(mine.bytes.data()), .is_small = 0}
          .put_into(steps_.cell(rank(), steps_.next()));
    }
    ways_.report();
    steps_.publish(call);
  }

  /// Gives the receiver this rank's own contribution, chunk by chunk, while filling the slot has it in the cache; an
  /// object, and what goes through no slot, comes in one piece.
  void receive_own(const operation& call, const own_contribution& mine, std::uint64_t offset, careful_receiver& out) {
    const bool is_piecewise = call.content != payload::object && mine.is_staged;
    const std::size_t total = mine.bytes.size();
    const std::size_t left = total - std::min<std::size_t>(offset, total);
    if (call.contributes(rank()) && call.receives(rank()) && (offset == 0 || (is_piecewise && left != 0))) {
      out.receive(rank(), mine.bytes.subspan(total - left, is_piecewise ? std::min(chunk_, left) : left), offset,
                  total);
    }
  }

  /// Moves everything, chunk by chunk: the next one is filled while the last one is read.
  void pass_chunks(const operation& call, const own_contribution& mine, careful_receiver& out) {
    for (std::uint64_t offset = 0;; offset += chunk_) {
      const std::uint64_t step = steps_.step();
      const bool more = offset + chunk_ < longest_;
      if (more) {
        steps_.wait_all(call, step - 1);  // until the slot of the next step is free
        if (mine.is_ordinary) {
          fill(mine, offset + chunk_);
        }
        steps_.publish(call);
        receive_own(call, mine, offset + chunk_, out);
      }
      receive_chunks(call, offset, step, out);
      if (!more) {
        break;
      }
      // Ranks that this one does not read may be two steps behind.
      if (call.pattern == movement::from_root) {
        steps_.wait_for_unchecked(call, call.root);
      } else if (call.receives(rank())) {
        steps_.wait_all(call);
      }
    }
    steps_.wait_all(call);
  }

  /// Gives the receiver the others' chunks of a step; what lies in heaps comes whole, with the first one.
  void receive_chunks(const operation& call, std::uint64_t offset, std::uint64_t step, careful_receiver& out) {
    for_each_source(call, [&](int source, const contribution_of& theirs) {
      if (theirs.place.in_segment != 0) {
        if (offset == 0) {
          receive_in_place(source, theirs, out);
        }
      } else if (offset == 0 || offset < theirs.bytes) {
        const std::byte* from = theirs.published_in(steps_, source, step);
        out.receive(source, {from, std::min<std::uint64_t>(chunk_, theirs.bytes - offset)}, offset, theirs.bytes);
      }
    });
  }
  /// Calls `use(source, contribution)` for each other rank that this one receives from. Each rank starts with the one
  /// behind it, which spreads the readers over the sources.
  template <class Use>
  void for_each_source(const operation& call, const Use& use) const {
    for (int turn = 1; call.receives(rank()) && turn < size(); ++turn) {
      if (const int source = (rank() + turn) % size(); is_read_by_others(call, source)) {
        use(source, contributions_[static_cast<std::size_t>(source)]);
      }
    }
  }
  void receive_in_place(int source, const contribution_of& theirs, careful_receiver& out) const {
    out.receive(source, {peers_.at(theirs.place.in_segment), static_cast<std::size_t>(theirs.bytes)}, 0, theirs.bytes);
  }

  /// Gives this rank's contribution, or takes the root's, without waiting for other ranks. Returns false where the root
  /// has a longer one: then the step is published, and the operation goes on with all ranks.
  bool leave_early(const operation& call, std::span<const std::byte> contribution, receiver& out) {
    put_short_contribution(steps_, contribution);
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
  [[nodiscard]] bool read_by_kernel(const operation& call, careful_receiver& out) {
    bool has_read_all = true;
    for_each_source(call, [&](int source, const contribution_of& theirs) {
      if (theirs.place.in_segment != 0) {
        receive_in_place(source, theirs, out);
      } else if (has_read_all) {
        out.attempt(
            [&](receiver& to) { has_read_all = reads_.receive(source, theirs.place.address, theirs.bytes, to); });
      }
    });
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

  /// Copies this rank's chunk into its cell or slot of the next step.
  void fill(const own_contribution& mine, std::uint64_t offset) {
    const std::size_t total = mine.bytes.size();
    if (offset < total) {
      const std::size_t count = std::min<std::size_t>(total - offset, chunk_);
      std::byte* to = mine.is_in_cell ? steps_.cell(rank(), steps_.next()).payload : steps_.slot(rank(), steps_.next());
      if (to != mine.bytes.data()) {  // staging_memory() may have been used
        way_.copy(to, mine.bytes.data() + offset, count);
      }
      if (!mine.is_in_cell) {
        steps_.note_part(0, count, reader_);
      }
    }
  }

  lockstep& steps_;
  peer_memory& peers_;
  kernel_reads& reads_;
  tuner& ways_;
  // The operation under way:
  transfer_way way_;
  std::size_t chunk_ = 0;  // bytes
  int reader_ = lockstep::everyone;
  detail::plain_list<contribution_of> contributions_;  // scratch
  detail::plain_list<std::uint64_t> lengths_;          // scratch
  std::uint64_t longest_ = 0;                          // of those that go through slots
};

}  // namespace hfcomm::engines
