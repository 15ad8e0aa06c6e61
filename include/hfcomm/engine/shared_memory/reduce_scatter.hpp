// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include <hfcomm/engine/host_engine.hpp>
#include <hfcomm/engine/reduction/copy_bytes.hpp>
#include <hfcomm/engine/shared_memory/lockstep.hpp>
#include <hfcomm/engine/shared_memory/ordered_fold.hpp>

namespace hfcomm::engines {

/// The algorithm of reduce_scatter. A rank's slot is divided into one part for each rank. Each rank reduces its part of
/// all slots straight into its output, so nothing is published twice.
class reduce_scatter {
 public:
  reduce_scatter(lockstep& steps, ordered_fold& fold) : steps_(steps), fold_(fold) {
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
    // All parts at once where they fit. A part then lies in the slot where it lies in the input.
    const std::size_t chunk = steps_.sizes().chunk_bytes(ranks);
    const bool at_once = in.size() <= chunk;
    const bool in_cell = in.size() <= layout::inline_bytes;
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
          detail::copy_bytes(mine + place, in.data() + from, count);
          if (!in_cell) {
            steps_.note_part(place, count, static_cast<int>(to));
          }
        }
      }
    };
    inputs_.resize(ranks);
    fill(0);
    steps_.publish(call);
    for (std::size_t round = 0; round < rounds; ++round) {
      steps_.wait_all(call);
      if (round == 0) {
        steps_.check(call);
        steps_.gather_factors(call, factors_);
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
  }

 private:
  lockstep& steps_;
  ordered_fold& fold_;
  std::vector<std::size_t> begins_;       // scratch: where each rank's part begins
  std::vector<const std::byte*> inputs_;  // scratch: where each rank's elements are
  std::vector<double> factors_;           // scratch: each rank's factor of a premultiplied sum
};

}  // namespace hfcomm::engines
