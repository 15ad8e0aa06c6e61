// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <hfcomm/core/call_site.hpp>
#include <hfcomm/core/config.hpp>
#include <hfcomm/core/error.hpp>
#include <hfcomm/group/process_group.hpp>
#include <hfcomm/group/session.hpp>

namespace hfcomm {

/// The way in which `distributed_sampler` handles items that do not divide evenly among the ranks.
enum class tail : std::uint8_t {
  pad,   ///< Repeats the first items of each epoch: all ranks have equally many, and every item comes.
  drop,  ///< Leaves the last items of each epoch out: all ranks have equally many, and no item comes twice.
  keep,  ///< Every item comes once: the first ranks have one more than the others. For `join_scope`, or evaluation.
};

/// Options of `distributed_sampler`. All ranks give the same.
struct sampler_options {
  /// Uses a random order, another one in every epoch; otherwise always 0, 1, 2, ...
  bool shuffle = true;
  /// Seed of the order (`shared_random_seed` draws one for all ranks).
  std::uint64_t seed = 0;
  /// The handling of items that do not divide evenly among the ranks.
  hfcomm::tail tail = hfcomm::tail::pad;
};

/// The items of a data set on which this rank works. In every epoch the items, in a random order or in their own, are
/// assigned to the ranks in turn: rank r of n gets the items at positions r, r + n, r + 2n, ... of the order. All ranks
/// have equally many, unless the `tail` is kept.
///
///     hfcomm::distributed_sampler sampler(data.size());
///     for (std::uint64_t epoch = 0; epoch < epochs; ++epoch) {
///       sampler.set_epoch(epoch);
///       for (const std::size_t index : sampler) { train(data[index]); }
///     }
///
/// The order depends on size, seed and epoch alone: not on the rank, the number of ranks, the platform or the standard
/// library. There is no communication: the ranks only must give the same size and options. Memory: this rank's indices,
/// and during `set_epoch` the whole order. Several threads may read it at once. (torch's `DistributedSampler`, in which
/// the orders of (seed, epoch + 1) and (seed + 1, epoch) are the same.)
class distributed_sampler {
 public:
  /// Makes a sampler for `size` items (0 is legal) and the ranks of `group`, at epoch 0.
  explicit distributed_sampler(std::size_t size, sampler_options options = {}, const process_group& group = world());

  /// Makes a sampler for rank `rank` of `ranks`, which need not be a group's. Throws usage_error for any other rank.
  distributed_sampler(std::size_t size, sampler_options options, int rank, int ranks,
                      call_site where = call_site::current());

  /// Returns the number of items that this rank has in an epoch; with `tail::keep` other ranks may have one more or one
  /// less.
  [[nodiscard]] std::size_t size() const noexcept { return indices_.size(); }
  [[nodiscard]] std::uint64_t epoch() const noexcept { return epoch_; }

  /// Returns all of this rank's items of the epoch, in order, whatever the position is.
  [[nodiscard]] std::span<const std::size_t> indices() const noexcept { return indices_; }

  /// Makes the indices of another epoch, and starts at their beginning.
  void set_epoch(std::uint64_t epoch);

  /// Returns the position in this rank's indices at which iterating begins: 0, or what `start_at` has set since
  /// `set_epoch`.
  [[nodiscard]] std::size_t position() const noexcept { return position_; }

  /// Resumes an interrupted epoch: the first `position` of this rank's items are done. Throws usage_error where it has
  /// fewer.
  void start_at(std::size_t position, call_site where = call_site::current());

  /// Returns the begin and end of the rest of the epoch, for a range-based `for`.
  [[nodiscard]] std::vector<std::size_t>::const_iterator begin() const noexcept {
    return indices_.begin() + static_cast<std::ptrdiff_t>(position_);
  }
  [[nodiscard]] std::vector<std::size_t>::const_iterator end() const noexcept { return indices_.end(); }

 private:
  [[nodiscard]] std::vector<std::size_t> shuffled(std::uint64_t epoch) const;
  [[nodiscard]] std::vector<std::size_t> indices_of(std::uint64_t epoch) const;

  std::size_t items_;
  sampler_options options_;
  int rank_;
  int ranks_;
  std::uint64_t epoch_ = 0;
  std::size_t position_ = 0;
  std::vector<std::size_t> indices_;
};

}  // namespace hfcomm
