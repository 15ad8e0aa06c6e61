// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include <hfcomm/engines/lockstep.hpp>
#include <hfcomm/engines/reduction.hpp>

namespace hfcomm::engines {

/// Equally long buffers become one, in rank order, on the ranks that receive.
class reduce {
 public:
  explicit reduce(lockstep& steps) : steps_(steps) {}

  void run(const operation& call, std::span<const std::byte> in, std::span<std::byte> out) {
    steps_.begin(call);
    if (in.size() <= steps_.sizes().one_shot_bytes) {
      at_once(call, in, out);
    } else {
      in_slices(call, in, out);
    }
  }

 private:
  [[nodiscard]] int rank() const noexcept { return steps_.rank(); }
  [[nodiscard]] int size() const noexcept { return steps_.size(); }

  /// One step: everyone publishes all of its input, whoever receives reduces all of it.
  void at_once(const operation& call, std::span<const std::byte> in, std::span<std::byte> out) {
    const bool in_cell = in.size() <= layout::inline_bytes;
    if (!in.empty()) {
      std::memcpy(in_cell ? steps_.cell(rank(), steps_.next()).payload : steps_.slot(rank(), steps_.next()), in.data(),
                  in.size());
    }
    steps_.publish(call);
    steps_.wait_all(call);
    steps_.check(call);
    if (!call.receives(rank()) || in.empty()) {
      return;
    }
    inputs_.resize(static_cast<std::size_t>(size()));
    for (int source = 0; source < size(); ++source) {
      inputs_[static_cast<std::size_t>(source)] =
          in_cell ? steps_.cell(source, steps_.step()).payload : steps_.slot(source, steps_.step());
    }
    steps_.gather_factors(call, factors_);
    detail::reduce_elements(call.op, call.element, inputs_, out.data(), in.size() / size_of(call.element), factors_);
  }

  /// Chunk by chunk: publish the chunk, reduce one's own slice of it, publish that, collect the other slices. The
  /// second half of a chunk shares its step with the first half of the next, so a chunk costs one synchronisation.
  void in_slices(const operation& call, std::span<const std::byte> in, std::span<std::byte> out) {
    const std::size_t width = size_of(call.element);
    const std::size_t total = in.size() / width;
    const std::size_t chunk = steps_.sizes().slot_bytes / width;
    const std::size_t chunks = (total + chunk - 1) / chunk;
    const bool receives = call.receives(rank());
    inputs_.resize(static_cast<std::size_t>(size()));

    stage(in, 0, chunk, total, width);
    steps_.publish(call);
    for (std::size_t index = 0; index <= chunks; ++index) {
      steps_.wait_all(call);
      if (index == 0) {
        steps_.check(call);
        steps_.gather_factors(call, factors_);
      }
      const std::uint64_t step = steps_.step();
      if (index < chunks) {
        const slices mine(index, chunk, total, size());
        const auto [begin, end] = mine.of(rank());
        for (int source = 0; source < size(); ++source) {
          inputs_[static_cast<std::size_t>(source)] = source == rank()
                                                          ? in.data() + begin * width
                                                          : steps_.slot(source, step) + (begin - index * chunk) * width;
        }
        std::byte* result = steps_.result(rank(), steps_.next());
        detail::reduce_elements(call.op, call.element, inputs_, result, end - begin, factors_);
        if (receives && end > begin) {
          std::memcpy(out.data() + begin * width, result, (end - begin) * width);
        }
        stage(in, index + 1, chunk, total, width);
        steps_.publish(call);
      }
      if (index > 0 && receives) {
        const slices before(index - 1, chunk, total, size());
        for (int turn = 1; turn < size(); ++turn) {
          const int owner = (rank() + turn) % size();
          const auto [begin, end] = before.of(owner);
          if (end > begin) {
            std::memcpy(out.data() + begin * width, steps_.result(owner, step), (end - begin) * width);
          }
        }
      }
    }
  }

  /// Which elements of a chunk each rank reduces: equal shares in whole cache lines.
  class slices {
   public:
    slices(std::size_t index, std::size_t chunk, std::size_t total, int ranks)
        : begin_(std::min(index * chunk, total)),
          end_(std::min(begin_ + chunk, total)),
          share_(layout::round_up(
              (end_ - begin_ + static_cast<std::size_t>(ranks) - 1) / static_cast<std::size_t>(ranks), 8)) {}

    [[nodiscard]] std::pair<std::size_t, std::size_t> of(int rank) const {
      const std::size_t from = std::min(begin_ + share_ * static_cast<std::size_t>(rank), end_);
      return {from, std::min(from + share_, end_)};
    }

   private:
    std::size_t begin_;
    std::size_t end_;
    std::size_t share_;
  };

  /// Copies chunk `index` to this rank's next slot, but for the slice that it reduces itself.
  void stage(std::span<const std::byte> in, std::size_t index, std::size_t chunk, std::size_t total,
             std::size_t width) {
    const slices parts(index, chunk, total, size());
    std::byte* slot = steps_.slot(rank(), steps_.next());
    const std::size_t base = index * chunk;
    for (int owner = 0; owner < size(); ++owner) {
      const auto [begin, end] = parts.of(owner);
      if (owner != rank() && end > begin) {
        std::memcpy(slot + (begin - base) * width, in.data() + begin * width, (end - begin) * width);
      }
    }
  }

  lockstep& steps_;
  std::vector<const std::byte*> inputs_;  // scratch: where each rank's elements are
  std::vector<double> factors_;           // scratch: each rank's factor of a premultiplied sum
};

}  // namespace hfcomm::engines
