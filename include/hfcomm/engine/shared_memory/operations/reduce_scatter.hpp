// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>

#include <hfcomm/core/plain_list.hpp>
#include <hfcomm/core/std_algorithm.hpp>
#include <hfcomm/engine/host_engine.hpp>
#include <hfcomm/engine/shared_memory/memory.hpp>
#include <hfcomm/engine/shared_memory/operations/kernel_fold.hpp>
#include <hfcomm/engine/shared_memory/steps.hpp>
#include <hfcomm/engine/shared_memory/ways.hpp>

namespace hfcomm::engines {

/// The algorithm of reduce_scatter. A rank's slot is divided into one part for each rank. Each rank reduces its part of
/// all slots straight into its output, so nothing is published twice. Inputs in heaps, and those that the kernel copies
/// (see transfer_way), are read in place.
class reduce_scatter {
 public:
  reduce_scatter(lockstep& steps, peer_memory& peers, kernel_reads& reads, tuner& ways)
      : steps_(steps), peers_(peers), reads_(reads), ways_(ways), kernel_fold_(steps, peers) {
    // Nothing may fail once this rank has published.
    const auto ranks = static_cast<std::size_t>(steps.size());
    begins_.reserve(ranks + 1);
    inputs_.reserve(ranks + 1);
  }

  /// `parts` has the bytes for each rank, the same on all ranks; `in` is as long as all of them.
  void run(const operation& call, std::span<const std::byte> in, std::span<const std::uint64_t> parts,
           std::span<std::byte> out) {
    steps_.begin(call);
    const auto ranks = static_cast<std::size_t>(steps_.size());
    const auto me = static_cast<std::size_t>(steps_.rank());
    const std::size_t width = size_of(call.element);
    begins_.assign(1, 0);
    for (const std::uint64_t part : parts) {
      begins_.push_back(begins_.back() + static_cast<std::size_t>(part));
    }
    const bool in_cell = in.size() <= layout::inline_bytes;
    const bool is_tuned = in.size() > layout::small_slot_bytes;
    const transfer_way way =
        ways_.begin(tuned_reduction(tuned_operation::reduce_scatter, call.element), is_tuned ? in.size() : 0);
    // All parts at once where they fit. A part then lies in the slot where it lies in the input.
    const std::size_t chunk = steps_.sizes().chunk_bytes(ranks, way.piece);
    const bool at_once = in.size() <= chunk;
    const std::size_t share = at_once ? in.size() : chunk / ranks / width * width;
    std::size_t largest = 0;
    for (const std::uint64_t part : parts) {
      largest = std::max(largest, static_cast<std::size_t>(part));
    }
    const std::size_t rounds = at_once ? 1 : (largest + share - 1) / share;

    const auto fill = [&](std::size_t round) {
      std::byte* mine =
          in_cell ? steps_.cell(steps_.rank(), steps_.next()).payload : steps_.slot(steps_.rank(), steps_.next());
      for (std::size_t to = 0; to < ranks; ++to) {
        const std::size_t from = std::min(begins_[to] + round * share, begins_[to + 1]);
        const std::size_t count = std::min(share, begins_[to + 1] - from);
        if (to != me && count != 0) {
          const std::size_t place = at_once ? begins_[to] : to * share;
          way.copy(mine + place, in.data() + from, count);
          if (!in_cell) {
            steps_.note_part(place, count, static_cast<int>(to));
          }
        }
      }
    };
    inputs_.resize(ranks);
    const bool is_reachable = is_tuned && put_place(in, way);
    if (!is_reachable) {
      fill(0);
    }
    ways_.report();
    steps_.publish(call);
    steps_.wait_all(call);
    steps_.check(call);
    steps_.gather_factors(call, factors_);
    if (is_tuned) {
      const auto [in_heaps, reachable] = find_inputs();
      ways_.agree(in_heaps == 0);
      if (reachable == ranks) {
        if (in_place(call, in, out, in_heaps == ranks)) {
          return;
        }
        ways_.stop_reading();
      }
      if (reachable != 0) {  // not all ranks have filled their slots
        fill(0);
        steps_.publish(call);
        steps_.wait_all(call);
      }
    }
    for (std::size_t round = 0; round < rounds; ++round) {
      steps_.wait_all(call);
      const std::uint64_t step = steps_.step();
      if (round + 1 < rounds) {
        fill(round + 1);
        steps_.publish(call);
      }
      const std::size_t from = std::min(begins_[me] + round * share, begins_[me + 1]);
      const std::size_t count = std::min(share, begins_[me + 1] - from);
      if (count == 0) {
        continue;
      }
      for (std::size_t source = 0; source < ranks; ++source) {
        const int rank = static_cast<int>(source);
        const std::byte* theirs = in_cell ? steps_.cell(rank, step).payload : steps_.slot(rank, step);
        inputs_[source] = source == me ? in.data() + from : theirs + (at_once ? from : me * share);
      }
      std::byte* const to = out.data() + (from - begins_[me]);
      detail::run_kernel(call.kernel, call.op, inputs_, to, count / width, factors_);
    }
    ways_.end();
  }

 private:
  /// Tells the others in the next step's cell where this rank's input is. Returns whether they may read it there.
  bool put_place(std::span<const std::byte> in, const transfer_way& way) {
    const std::uint64_t place = in.size() > layout::least_in_heap ? peers_.place_to_read(in) : 0;
    const bool by_kernel = place == 0 && way.medium == transfer_medium::kernel;
    const layout::buffer_places mine{.in = place,
                                     .in_address = by_kernel ? reinterpret_cast<std::uintptr_t>(in.data()) : 0};
    std::memcpy(steps_.cell(steps_.rank(), steps_.next()).payload, &mine, sizeof(mine));
    return place != 0 || by_kernel;
  }

  /// Finds where this rank's part of each input is. Returns how many lie in heaps, and how many in heaps or where the
  /// kernel may read them.
  std::pair<std::size_t, std::size_t> find_inputs() {
    std::size_t in_heaps = 0;
    std::size_t reachable = 0;
    kernel_fold_.sources.clear();
    for (int rank = 0; rank < steps_.size(); ++rank) {
      layout::buffer_places theirs;
      if (!steps_.sizes().spans_machines()) {  // ranks of other machines do not reach buffers
        std::memcpy(&theirs, steps_.cell(rank, steps_.step()).payload, sizeof(theirs));
      }
      in_heaps += theirs.in != 0 ? 1 : 0;
      reachable += theirs.in != 0 || theirs.in_address != 0 ? 1 : 0;
      const kernel_fold::source whole{theirs.in, theirs.in_address};
      kernel_fold_.sources.push_back(whole.behind(begins_[static_cast<std::size_t>(steps_.rank())]));
    }
    return {in_heaps, reachable};
  }

  /// Reduces this rank's part of all inputs where they are. Returns false, on all ranks, where some input lies in
  /// memory that only its owner can read.
  [[nodiscard]] bool in_place(const operation& call, std::span<const std::byte> in, std::span<std::byte> out,
                              bool all_in_heaps) {
    const auto me = static_cast<std::size_t>(steps_.rank());
    const std::span<const std::byte> own = in.subspan(begins_[me], begins_[me + 1] - begins_[me]);
    if (!all_in_heaps && !reads_.could_all(call, kernel_fold_.can_run(own.size()))) {
      return false;
    }
    const bool has_read_all = kernel_fold_.run(call, own, out.data(), factors_);
    if (!reads_.have_all_read(call, has_read_all)) {
      reads_.throw_unreadable(call);
    }
    ways_.end();
    return true;
  }

  lockstep& steps_;
  peer_memory& peers_;
  kernel_reads& reads_;
  tuner& ways_;
  kernel_fold kernel_fold_;
  detail::plain_list<std::size_t> begins_;       // scratch: where each rank's part begins
  detail::plain_list<const std::byte*> inputs_;  // scratch: where each rank's elements are
  detail::plain_list<double> factors_;           // scratch: each rank's factor of a premultiplied sum
};

}  // namespace hfcomm::engines
