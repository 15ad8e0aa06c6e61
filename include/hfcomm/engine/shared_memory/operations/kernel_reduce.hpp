// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <hfcomm/engine/operation.hpp>
#include <hfcomm/engine/reduction/copy_bytes.hpp>
#include <hfcomm/engine/shared_memory/memory.hpp>
#include <hfcomm/engine/shared_memory/operations/kernel_fold.hpp>
#include <hfcomm/engine/shared_memory/steps.hpp>
#include <hfcomm/engine/shared_memory/ways.hpp>

namespace hfcomm::engines {

/// An all-reduce of buffers that the kernel reads from their owners' memory, in three steps more: the ranks tell that
/// they can read, every rank reduces its slice of all inputs into its output, and then reads the other slices from the
/// others' outputs.
class kernel_reduce {
 public:
  kernel_reduce(lockstep& steps, peer_memory& peers, kernel_reads& reads)
      : steps_(steps), peers_(peers), reads_(reads), fold_(steps, peers) {}

  /// `places` has the buffers of each rank; `slice_of(rank)` is its first element and the one behind its last. Returns
  /// false, on all ranks, where some buffer lies in memory that only its owner can read; nothing is done then.
  template <class SliceOf>
  [[nodiscard]] bool run(const operation& call, std::span<const std::byte> in, std::span<std::byte> out,
                         std::span<const layout::buffer_places> places, std::span<const double> factors,
                         SliceOf&& slice_of) {
    const std::size_t width = size_of(call.element);
    const auto [begin, end] = slice_of(steps_.rank());
    const std::size_t offset = begin * width;
    fold_.sources.clear();
    for (const layout::buffer_places& theirs : places) {
      fold_.sources.push_back(kernel_fold::source{theirs.in, theirs.in_address}.behind(offset));
    }
    const std::size_t bytes = (end - begin) * width;
    if (!reads_.could_all(call, fold_.can_run(bytes) && can_read_results(places, width, slice_of))) {
      return false;
    }
    bool has_read_all = fold_.run(call, in.subspan(offset, bytes), out.data() + offset, factors);
    peers_.show_written(out.subspan(offset, bytes));
    if (!reads_.could_all(call, has_read_all)) {
      reads_.throw_unreadable(call);
    }
    for (int turn = 1; turn < steps_.size(); ++turn) {
      const int owner = (steps_.rank() + turn) % steps_.size();
      const auto [first, last] = slice_of(owner);
      const layout::buffer_places& theirs = places[static_cast<std::size_t>(owner)];
      has_read_all =
          has_read_all && read(owner, theirs, first * width, out.subspan(first * width, (last - first) * width));
    }
    if (!reads_.have_all_read(call, has_read_all)) {
      reads_.throw_unreadable(call);
    }
    return true;
  }

 private:
  /// Returns whether this rank can read the slices of the others' outputs.
  template <class SliceOf>
  [[nodiscard]] bool can_read_results(std::span<const layout::buffer_places> places, std::size_t width,
                                      const SliceOf& slice_of) const {
    for (int owner = 0; owner < steps_.size(); ++owner) {
      const auto [first, last] = slice_of(owner);
      const layout::buffer_places& theirs = places[static_cast<std::size_t>(owner)];
      if (owner != steps_.rank() && theirs.out == 0 &&
          !peers_.can_read(owner, theirs.out_address + first * width, (last - first) * width)) {
        return false;
      }
    }
    return true;
  }

  [[nodiscard]] bool read(int owner, const layout::buffer_places& theirs, std::size_t offset,
                          std::span<std::byte> to) const {
    if (theirs.out == 0) {
      return peers_.read(owner, theirs.out_address + offset, to);
    }
    detail::copy_bytes(to.data(), peers_.at(theirs.out) + offset, to.size());
    return true;
  }

  lockstep& steps_;
  const peer_memory& peers_;
  kernel_reads& reads_;
  kernel_fold fold_;
};

}  // namespace hfcomm::engines
