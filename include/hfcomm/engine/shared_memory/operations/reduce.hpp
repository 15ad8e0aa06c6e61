// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <utility>

#include <hfcomm/core/plain_list.hpp>
#include <hfcomm/core/std_algorithm.hpp>
#include <hfcomm/engine/reduction/copy_bytes.hpp>
#include <hfcomm/engine/shared_memory/memory.hpp>
#include <hfcomm/engine/shared_memory/operations/kernel_reduce.hpp>
#include <hfcomm/engine/shared_memory/operations/node_chain.hpp>
#include <hfcomm/engine/shared_memory/operations/short_contribution.hpp>
#include <hfcomm/engine/shared_memory/steps.hpp>
#include <hfcomm/engine/shared_memory/ways.hpp>

namespace hfcomm::engines {

/// The algorithm that reduces equally long buffers for the ranks that receive.
class reduce {
 public:
  [[gnu::cold]] reduce(lockstep& steps, peer_memory& peers, kernel_reads& reads, tuner& ways, rank_nodes& nodes)
      : steps_(steps), peers_(peers), ways_(ways), by_kernel_(steps, peers, reads), nodes_(steps, peers, nodes) {
    // Nothing may fail once this rank has published.
    const auto ranks = static_cast<std::size_t>(steps.size());
    inputs_.reserve(ranks + 1);
    outputs_.reserve(ranks + 1);
    places_.reserve(ranks + 1);
  }

  [[nodiscard]] node_chain& nodes() noexcept { return nodes_; }

  void run(const operation& call, std::span<const std::byte> in, std::span<std::byte> out) {
    const bool leaves = steps_.may_leave(call) && !call.receives(rank()) && in.size() <= layout::small_slot_bytes;
    steps_.begin(call, leaves);
    way_ = choose_way(call, in.size());
    if (leaves) {
      leave_early(call, in);
    } else if (in.size() <= steps_.sizes().one_shot_bytes) {
      at_once(call, in, out);
    } else {
      in_place_or_slices(call, in, out);
    }
    ways_.end();
  }

 private:
  [[nodiscard]] int rank() const noexcept { return steps_.rank(); }
  [[nodiscard]] int size() const noexcept { return steps_.size(); }
  [[nodiscard]] transfer_way choose_way(const operation& call, std::size_t bytes) {
    const tuned_operation kind = tuned_reduction(
        call.pattern == movement::to_root ? tuned_operation::reduce : tuned_operation::all_reduce, call.element);
    const bool is_tuned = bytes > layout::small_slot_bytes;
    const bool may_use_nodes = is_tuned && nodes_.suits(call, bytes);
    const transfer_way tuned = ways_.begin(kind, is_tuned ? bytes : 0, may_use_nodes);
    return may_use_nodes && nodes_.is_forced() ? transfer_way{.medium = transfer_medium::nodes} : tuned;
  }
  /// Returns the rank that gets the result; -1: all ranks.
  [[nodiscard]] static int receiver_of(const operation& call) noexcept {
    return call.pattern == movement::to_root ? call.root : lockstep::everyone;
  }
  [[nodiscard]] std::size_t chunk_bytes() const {
    return steps_.sizes().chunk_bytes(static_cast<std::size_t>(size()), way_.piece);
  }

  void fold(const operation& call, std::size_t count) const {
    detail::run_kernel(call.kernel, call.op, inputs_, outputs_, count, factors_);
  }

  /// Publishes this rank's whole input for the root, and does not wait for other ranks.
  void leave_early(const operation& call, std::span<const std::byte> in) {
    put_short_contribution(steps_, in);
    steps_.publish(call);
    steps_.finish();
  }

  /// Returns where the input of `source` lies, in a reduction of one step.
  [[nodiscard]] const std::byte* input_of(int source, bool in_cell) const {
    const layout::flag_cell& cell = steps_.cell(source, steps_.step());
    if (in_cell) {
      return cell.payload;
    }
    const bool is_small = !steps_.sizes().spans_machines() && layout::contribution_place::of(cell).is_small != 0;
    return is_small ? steps_.small_slot(source, steps_.step()) : steps_.slot(source, steps_.step());
  }

  /// One step: every rank publishes its whole input, and every rank that receives reduces all of them.
  void at_once(const operation& call, std::span<const std::byte> in, std::span<std::byte> out) {
    const bool in_cell = in.size() <= layout::inline_bytes;
    way_.copy(in_cell ? steps_.cell(rank(), steps_.next()).payload : steps_.slot(rank(), steps_.next()), in.data(),
              in.size());
    if (!in_cell) {
      layout::contribution_place{}.put_into(steps_.cell(rank(), steps_.next()));
      steps_.note_part(0, in.size(), receiver_of(call));
    }
    ways_.report();
    steps_.publish(call);
    steps_.wait_all(call);
    steps_.check(call);
    ways_.agree();
    if (!call.receives(rank()) || in.empty()) {
      return;
    }
    inputs_.resize(static_cast<std::size_t>(size()));
    for (int source = 0; source < size(); ++source) {
      inputs_[static_cast<std::size_t>(source)] = input_of(source, in_cell);
    }
    steps_.gather_factors(call, factors_);
    outputs_.assign(1, out.data());
    fold(call, in.size() / size_of(call.element));
  }

  /// Where all buffers lie in the group's heaps, every rank reduces its share of the elements of all inputs, straight
  /// into all outputs; nothing is copied. Where the kernel copies, other buffers are read in place, too.
  ///
  /// The ranks tell where their buffers are in the step that compares the signatures. A rank with other memory uses
  /// that step for its first chunk, too. If only some ranks have other memory, the rest take one more step for their
  /// first chunk.
  ///
  /// The NUMA nodes are a chain through slots if that is the way, and in place if a model says that it pays.
  void in_place_or_slices(const operation& call, std::span<const std::byte> in, std::span<std::byte> out) {
    const bool uses_nodes = way_.medium == transfer_medium::nodes;
    const bool receives = call.receives(rank());
    layout::buffer_places mine{.in = peers_.place_to_read(in), .out = receives ? peers_.place_of(out) : 0};
    const bool in_heap = mine.in != 0 && (mine.out != 0 || !receives);
    if (!in_heap) {
      mine = {};
      if (way_.medium == transfer_medium::kernel) {
        mine.in_address = reinterpret_cast<std::uintptr_t>(in.data());
        mine.out_address = reinterpret_cast<std::uintptr_t>(out.data());
      }
    }
    const bool reachable = in_heap || mine.in_address != 0;
    if (!reachable && !uses_nodes) {
      stage(in, 0, size_of(call.element), steps_.next());
    }
    std::memcpy(steps_.cell(rank(), steps_.next()).payload, &mine, sizeof(mine));
    ways_.report();
    steps_.publish(call);
    steps_.wait_all(call);
    steps_.check(call);
    steps_.gather_factors(call, factors_);
    int ranks_in_heaps = 0;
    int reachable_ranks = 0;
    places_.resize(static_cast<std::size_t>(size()));
    for (int source = 0; source < size(); ++source) {
      auto& theirs = places_[static_cast<std::size_t>(source)];
      theirs = {};
      if (!steps_.sizes().spans_machines()) {  // ranks of other machines do not reach buffers
        std::memcpy(&theirs, steps_.cell(source, steps_.step()).payload, sizeof(theirs));
      }
      ranks_in_heaps += theirs.in != 0 ? 1 : 0;
      reachable_ranks += theirs.in != 0 || theirs.in_address != 0 ? 1 : 0;
    }
    if (ranks_in_heaps == size()) {
      ways_.agree(false);
      if (nodes_.suits(call, in.size())) {
        nodes_.run_in_place(call, places_, in.size(), factors_);
      } else {
        in_place(call, in.size());
      }
      if (receives) {
        peers_.take_written(out);
      }
      return;
    }
    ways_.agree(ranks_in_heaps == 0);
    if (uses_nodes) {
      nodes_.run(call, in, out, factors_);
      return;
    }
    if (reachable_ranks == size()) {
      const std::size_t total = in.size() / size_of(call.element);
      const auto slice_of = [whole = slices(0, total, total, size())](int owner) { return whole.of(owner); };
      if (by_kernel_.run(call, in, out, places_, factors_, slice_of)) {
        return;
      }
      ways_.stop_reading();
    }
    const std::uint64_t first = steps_.step();
    if (reachable_ranks != 0) {
      if (reachable) {
        stage(in, 0, size_of(call.element), first);
      }
      steps_.publish(call);
      steps_.wait_all(call);
    }
    in_slices(call, in, out, first);
  }

  void in_place(const operation& call, std::size_t bytes) {
    const std::size_t width = size_of(call.element);
    const std::size_t total = bytes / width;
    const auto [begin, end] = slices(0, total, total, size()).of(rank());
    inputs_.clear();
    outputs_.clear();
    for (int other = 0; other < size(); ++other) {
      const auto& theirs = places_[static_cast<std::size_t>(other)];
      inputs_.push_back(peers_.at(theirs.in) + begin * width);
      if (call.receives(other)) {
        outputs_.push_back(peers_.at(theirs.out) + begin * width);
      }
    }
    fold(call, end - begin);
    steps_.throw_if_broken(call);
    steps_.publish(call);
    steps_.wait_all(call);
  }

  /// Chunk by chunk: publish the chunk, reduce one's own slice of it, publish that, collect the other slices. The
  /// second half of a chunk shares its step with the first half of the next, so a chunk costs one synchronisation.
  ///
  /// The first chunks lie in the slots of step `first`, which all have published.
  void in_slices(const operation& call, std::span<const std::byte> in, std::span<std::byte> out, std::uint64_t first) {
    const std::size_t width = size_of(call.element);
    const std::size_t total = in.size() / width;
    const std::size_t chunk = chunk_bytes() / width;
    const std::size_t chunks = (total + chunk - 1) / chunk;
    const bool receives = call.receives(rank());
    inputs_.resize(static_cast<std::size_t>(size()));

    for (std::size_t index = 0; index <= chunks; ++index) {
      if (index != 0) {
        steps_.wait_all(call);
      }
      const std::uint64_t step = index == 0 ? first : steps_.step();
      if (index < chunks) {
        const slices mine(index, chunk, total, size());
        const auto [begin, end] = mine.of(rank());
        for (int source = 0; source < size(); ++source) {
          inputs_[static_cast<std::size_t>(source)] = source == rank()
                                                          ? in.data() + begin * width
                                                          : steps_.slot(source, step) + (begin - index * chunk) * width;
        }
        fold_slice(call, receives ? out.data() + begin * width : nullptr, end - begin);
        steps_.note_part(steps_.sizes().slot_bytes, (end - begin) * width, receiver_of(call));
        stage(in, index + 1, width, steps_.next());
        steps_.publish(call);
      }
      if (index > 0 && receives) {
        const slices before(index - 1, chunk, total, size());
        for (int turn = 1; turn < size(); ++turn) {
          const int owner = (rank() + turn) % size();
          const auto [begin, end] = before.of(owner);
          detail::copy_bytes(out.data() + begin * width, steps_.result(owner, step), (end - begin) * width);
        }
      }
    }
  }

  /// Reduces `inputs_` into this rank's result of the next step, and into its output, if it has one.
  void fold_slice(const operation& call, std::byte* out, std::size_t count) {
    std::byte* const result = steps_.result(rank(), steps_.next());
    const bool passes_caches = way_.medium == transfer_medium::streamed && out != nullptr;
    outputs_.assign(1, passes_caches ? out : result);
    if (out != nullptr && !passes_caches) {
      outputs_.push_back(out);
    }
    fold(call, count);
    if (passes_caches) {
      way_.copy(result, out, count * size_of(call.element));
    }
  }

  /// The elements of a chunk that each rank reduces: equal shares, in multiples of `slice_unit`.
  class slices {
   public:
    slices(std::size_t index, std::size_t chunk, std::size_t total, int ranks)
        : begin_(std::min(index * chunk, total)),
          end_(std::min(begin_ + chunk, total)),
          share_(
              layout::round_up((end_ - begin_ + static_cast<std::size_t>(ranks) - 1) / static_cast<std::size_t>(ranks),
                               layout::slice_unit)) {}

    [[nodiscard]] std::pair<std::size_t, std::size_t> of(int rank) const {
      const std::size_t from = std::min(begin_ + share_ * static_cast<std::size_t>(rank), end_);
      return {from, std::min(from + share_, end_)};
    }

   private:
    std::size_t begin_;
    std::size_t end_;
    std::size_t share_;
  };

  /// Copies chunk `index` to this rank's slot of `step`, except the slice that this rank reduces itself.
  void stage(std::span<const std::byte> in, std::size_t index, std::size_t width, std::uint64_t step) {
    const std::size_t chunk = chunk_bytes() / width;
    const slices parts(index, chunk, in.size() / width, size());
    std::byte* slot = steps_.slot(rank(), step);
    const std::size_t base = index * chunk;
    for (int owner = 0; owner < size(); ++owner) {
      const auto [begin, end] = parts.of(owner);
      if (owner != rank() && end > begin) {
        way_.copy(slot + (begin - base) * width, in.data() + begin * width, (end - begin) * width);
        steps_.note_part((begin - base) * width, (end - begin) * width, owner);
      }
    }
  }

  lockstep& steps_;
  peer_memory& peers_;
  tuner& ways_;
  transfer_way way_;  // of the operation under way
  kernel_reduce by_kernel_;
  node_chain nodes_;
  detail::plain_list<const std::byte*> inputs_;       // scratch: where each rank's elements are
  detail::plain_list<std::byte*> outputs_;            // scratch: where they go
  detail::plain_list<layout::buffer_places> places_;  // scratch
  detail::plain_list<double> factors_;                // scratch: each rank's factor of a premultiplied sum
};

}  // namespace hfcomm::engines
