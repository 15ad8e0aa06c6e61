// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>
#include <span>
#include <vector>

#include <hfcomm/core/plain_list.hpp>
#include <hfcomm/core/std_algorithm.hpp>
#include <hfcomm/engine/operation.hpp>
#include <hfcomm/engine/shared_memory/steps.hpp>
#include <hfcomm/engine/shared_memory/ways.hpp>

namespace hfcomm::engines {

/// Reduces elements that lie in the memory of other ranks: the kernel copies them block by block into this core's
/// cache.
class kernel_fold {
 public:
  /// A rank's elements: at an offset in the segment, or else at an address of its own memory.
  struct source {
    std::uint64_t place = 0;
    std::uint64_t address = 0;

    [[nodiscard]] source behind(std::size_t bytes) const {
      return place != 0 ? source{place + bytes, 0} : source{0, address + bytes};
    }
  };

  kernel_fold(const lockstep& steps, const peer_memory& peers) : steps_(steps), peers_(peers) {
    const auto ranks = static_cast<std::size_t>(steps.size());
    inputs_.reserve(ranks);
    sources.reserve(ranks);
  }

  /// The elements of each rank, as `run` is to read them. Those of this rank are not looked at.
  detail::plain_list<source> sources;

  /// Returns whether `bytes` of every other rank's elements can be read, and there is memory for blocks of them.
  /// Nothing may be replaced by a result before all ranks know that they can: slots are used instead where one cannot.
  [[nodiscard]] bool can_run(std::size_t bytes) {
    try {
      scratch_.resize(most_block() * static_cast<std::size_t>(steps_.size()));
    } catch (const std::bad_alloc&) {
      return false;
    }
    bool can = true;
    for (std::size_t rank = 0; can && rank < sources.size(); ++rank) {
      can = rank == static_cast<std::size_t>(steps_.rank()) || sources[rank].place != 0 ||
            peers_.can_read(static_cast<int>(rank), sources[rank].address, bytes);
    }
    return can;
  }

  /// Reduces the bytes of all ranks' elements; `in` are this rank's own. Follows a `can_run` that returned true.
  /// Returns false where some memory cannot be read.
  [[nodiscard]] bool run(const operation& call, std::span<const std::byte> in, std::byte* out,
                         std::span<const double> factors) {
    const std::size_t width = size_of(call.element);
    const std::size_t block = most_block() / width * width;
    for (std::size_t begin = 0; begin < in.size(); begin += block) {
      const std::size_t bytes = std::min(block, in.size() - begin);
      if (!read_block(begin, bytes, block)) {
        return false;
      }
      inputs_[static_cast<std::size_t>(steps_.rank())] = in.data() + begin;
      std::byte* const to = out + begin;
      detail::run_kernel(call.kernel, call.op, inputs_, to, bytes / width, factors);
    }
    return true;
  }

 private:
  static constexpr std::size_t most_bytes = std::size_t{256} << 10;  // of all ranks' blocks: they stay in the cache
  static constexpr std::size_t least_bytes = std::size_t{16} << 10;  // for which a system call is worthwhile

  [[nodiscard]] std::size_t most_block() const noexcept {
    return std::max(most_bytes / static_cast<std::size_t>(steps_.size()), least_bytes);
  }

  /// Finds a block of every other rank's elements, in `inputs_`.
  [[nodiscard]] bool read_block(std::size_t begin, std::size_t bytes, std::size_t stride) {
    inputs_.resize(sources.size());
    for (std::size_t rank = 0; rank < sources.size(); ++rank) {
      if (rank == static_cast<std::size_t>(steps_.rank())) {
        continue;
      }
      if (sources[rank].place != 0) {
        inputs_[rank] = peers_.at(sources[rank].place + begin);
        continue;
      }
      std::byte* const to = scratch_.data() + rank * stride;
      if (!peers_.read(static_cast<int>(rank), sources[rank].address + begin, {to, bytes})) {
        return false;
      }
      inputs_[rank] = to;
    }
    return true;
  }

  const lockstep& steps_;
  const peer_memory& peers_;
  detail::plain_list<const std::byte*> inputs_;  // scratch
  std::vector<std::byte> scratch_;               // a block for each rank
};

}  // namespace hfcomm::engines
