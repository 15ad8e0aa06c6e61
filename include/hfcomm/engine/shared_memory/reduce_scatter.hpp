// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include <hfcomm/engine/host_engine.hpp>
#include <hfcomm/engine/shared_memory/kernel_fold.hpp>
#include <hfcomm/engine/shared_memory/kernel_reads.hpp>
#include <hfcomm/engine/shared_memory/layout.hpp>
#include <hfcomm/engine/shared_memory/lockstep.hpp>
#include <hfcomm/engine/shared_memory/ordered_fold.hpp>
#include <hfcomm/engine/shared_memory/peer_memory.hpp>
#include <hfcomm/engine/shared_memory/tuner.hpp>

namespace hfcomm::engines {

/// The algorithm of reduce_scatter. A rank's slot is divided into one part for each rank. Each rank reduces its part of
/// all slots straight into its output, so nothing is published twice. Or it reads its part of all inputs by the kernel.
class reduce_scatter {
 public:
  reduce_scatter(lockstep& steps, const peer_memory& peers, kernel_reads& reads, tuner& ways, ordered_fold& fold)
      : steps_(steps), reads_(reads), ways_(ways), fold_(fold), kernel_fold_(steps, peers, fold) {
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
    const transfer_way way = in_cell ? transfer_way() : ways_.begin(tuned_operation::reduce_scatter, in.size());
    if (way.medium == transfer_medium::kernel && by_kernel(call, in, out)) {
      return;
    }
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
    fill(0);
    if (!in_cell) {
      ways_.report();
    }
    steps_.publish(call);
    for (std::size_t round = 0; round < rounds; ++round) {
      steps_.wait_all(call);
      if (round == 0) {
        steps_.check(call);
        steps_.gather_factors(call, factors_);
        if (!in_cell) {
          ways_.agree();
        }
      }
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
      fold_.run(call, inputs_, {&to, 1}, count / width, factors_);
    }
    if (!in_cell) {
      ways_.end();
    }
  }

 private:
  /// Reads this rank's part of all inputs by the kernel. Returns false, on all ranks, where some input lies in memory
  /// that only its owner can read.
  [[nodiscard]] bool by_kernel(const operation& call, std::span<const std::byte> in, std::span<std::byte> out) {
    const layout::buffer_places mine{.in_address = reinterpret_cast<std::uintptr_t>(in.data())};
    std::memcpy(steps_.cell(steps_.rank(), steps_.next()).payload, &mine, sizeof(mine));
    ways_.report();
    steps_.publish(call);
    steps_.wait_all(call);
    steps_.check(call);
    const auto me = static_cast<std::size_t>(steps_.rank());
    const std::span<const std::byte> own = in.subspan(begins_[me], begins_[me + 1] - begins_[me]);
    kernel_fold_.sources.clear();
    for (int rank = 0; rank < steps_.size(); ++rank) {
      layout::buffer_places theirs;
      std::memcpy(&theirs, steps_.cell(rank, steps_.step()).payload, sizeof(theirs));
      kernel_fold_.sources.push_back(kernel_fold::source{0, theirs.in_address}.behind(begins_[me]));
    }
    ways_.agree();
    steps_.gather_factors(call, factors_);
    if (!reads_.could_all(call, kernel_fold_.can_run(own.size()))) {
      ways_.stop_reading();
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
  kernel_reads& reads_;
  tuner& ways_;
  ordered_fold& fold_;
  kernel_fold kernel_fold_;
  std::vector<std::size_t> begins_;       // scratch: where each rank's part begins
  std::vector<const std::byte*> inputs_;  // scratch: where each rank's elements are
  std::vector<double> factors_;           // scratch: each rank's factor of a premultiplied sum
};

}  // namespace hfcomm::engines
