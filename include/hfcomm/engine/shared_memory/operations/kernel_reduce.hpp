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

/// A reduction of buffers that the kernel copies from and to their owners' memory. The ranks tell that they can, and
/// every rank reduces its slice of all inputs: into its output, from where the other ranks then read it, or block by
/// block into the output of the only one that receives. That is three steps more, or two.
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
    const bool has_root = call.pattern == movement::to_root;
    // Where this rank's slice of the root's output is in the root's memory; 0: this rank is the root.
    const std::uint64_t there =
        has_root && call.root != steps_.rank() ? places[static_cast<std::size_t>(call.root)].out_address + offset : 0;
    const bool can_end =
        has_root ? there == 0 || peers_.can_write(call.root, there, bytes) : can_read_results(places, width, slice_of);
    if (!reads_.could_all(call, fold_.can_run(bytes) && can_end)) {
      return false;
    }
    std::byte* const here = there == 0 ? out.data() + offset : nullptr;
    bool has_read_all = fold_.run(call, in.subspan(offset, bytes), here, factors, there);
    if (has_root) {
      finish(call, has_read_all);
      return true;
    }
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
    finish(call, has_read_all);
    return true;
  }

 private:
  /// Takes the step that ends the operation.
  void finish(const operation& call, bool has_done_all) {
    if (!reads_.have_all_read(call, has_done_all)) {
      reads_.throw_unreadable(call);
    }
  }
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
