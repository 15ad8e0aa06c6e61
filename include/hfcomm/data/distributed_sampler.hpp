// SPDX-License-Identifier: MIT
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <source_location>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <hfcomm/group/process_group.hpp>
#include <hfcomm/group/session.hpp>

namespace hfcomm {

/// What `distributed_sampler` does where the items do not divide evenly among the ranks.
enum class tail : std::uint8_t {
  pad,   ///< The first items of each epoch come a second time: every rank has as many, and every item comes.
  drop,  ///< The last items of each epoch are left out: every rank has as many, and no item comes twice.
  keep,  ///< Every item comes once: the first ranks have one more than the others. For `join_scope`, or evaluation.
};

/// How `distributed_sampler` deals a data set out.
struct sampler_options {
  /// Another order in every epoch; otherwise always 0, 1, 2, ...
  bool shuffle = true;
  /// Of the order; the same on all ranks (`shared_random_seed` draws one).
  std::uint64_t seed = 0;
  /// Where the items do not divide evenly among the ranks.
  hfcomm::tail tail = hfcomm::tail::pad;
};

namespace detail {

/// Random numbers that are the same on every platform and with every standard library: number i is a scrambled sum of
/// key and i, after splitmix64.
class counted_random {
 public:
  constexpr explicit counted_random(std::uint64_t key) noexcept : state_(key) {}

  static constexpr std::uint64_t scramble(std::uint64_t bits) noexcept {
    bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9U;
    bits = (bits ^ (bits >> 27)) * 0x94d049bb133111ebU;
    return bits ^ (bits >> 31);
  }

  constexpr std::uint64_t next() noexcept { return scramble(state_ += 0x9e3779b97f4a7c15U); }

  /// From 0 to `last`, each with the same probability: what does not fit is drawn again, less than once on average.
  constexpr std::uint64_t up_to(std::uint64_t last) noexcept {
    const int spare = std::countl_zero(last | 1);
    while (true) {
      if (const std::uint64_t drawn = next() >> spare; drawn <= last) {
        return drawn;
      }
    }
  }

 private:
  std::uint64_t state_;
};

}  // namespace detail

/// Which items of a data set this rank works on. In every epoch the items, in a random order or in their own, are dealt
/// out one by one: rank r of n gets numbers r, r + n, r + 2n, ... of the order. All ranks have equally
/// many, unless the `tail` is kept.
///
///     hfcomm::distributed_sampler sampler(data.size());
///     for (std::uint64_t epoch = 0; epoch < epochs; ++epoch) {
///       sampler.set_epoch(epoch);
///       for (const std::size_t index : sampler) { train(data[index]); }
///     }
///
/// The order depends on size, seed and epoch alone: not on the rank, the number of ranks, the platform or the standard
/// library. No communication: the ranks only must give the same size and options. Holds this rank's indices, and while
/// an epoch's are made the whole order. Several threads may read it at once. (torch's `DistributedSampler`, in which
/// the orders of (seed, epoch + 1) and (seed + 1, epoch) are one.)
class distributed_sampler {
 public:
  /// For `size` items (0 is legal) and the ranks of `group`, at epoch 0.
  explicit distributed_sampler(std::size_t size, sampler_options options = {}, const process_group& group = world())
      : distributed_sampler(private_tag(), size, options, group.rank(), group.size()) {}

  /// For rank `rank` of `ranks` that need not be a group's. Throws usage_error where there is no such rank.
  distributed_sampler(std::size_t size, sampler_options options, int rank, int ranks,
                      std::source_location where = std::source_location::current())
      : distributed_sampler(private_tag(), size, options, checked(rank, ranks, where), ranks) {}

  /// The number of items that this rank has in an epoch; with `tail::keep` others may have one more or one less.
  [[nodiscard]] std::size_t size() const noexcept { return indices_.size(); }
  [[nodiscard]] std::uint64_t epoch() const noexcept { return epoch_; }

  /// This rank's items of the epoch, in order, whatever the position is.
  [[nodiscard]] std::span<const std::size_t> indices() const noexcept { return indices_; }

  /// Makes the indices of another epoch, and starts at their beginning.
  void set_epoch(std::uint64_t epoch) {
    if (epoch != epoch_ && options_.shuffle) {
      indices_ = deal(epoch);
    }
    epoch_ = epoch;
    position_ = 0;
  }

  /// Where in this rank's indices iterating begins: 0, unless `start_at` said otherwise since `set_epoch`.
  [[nodiscard]] std::size_t position() const noexcept { return position_; }

  /// Goes on where an interrupted epoch was: the first `position` of this rank's items are done. Throws usage_error
  /// where it has fewer.
  void start_at(std::size_t position, std::source_location where = std::source_location::current()) {
    if (position > size()) {
      throw usage_error(
          {rank_, ranks_, "distributed_sampler::start_at", 0, where},
          "position " + std::to_string(position) + " is behind the " + std::to_string(size()) + " items of this rank");
    }
    position_ = position;
  }

  /// What is left of the epoch, for a range-based `for`.
  [[nodiscard]] std::vector<std::size_t>::const_iterator begin() const noexcept {
    return indices_.begin() + static_cast<std::ptrdiff_t>(position_);
  }
  [[nodiscard]] std::vector<std::size_t>::const_iterator end() const noexcept { return indices_.end(); }

 private:
  struct private_tag {};

  distributed_sampler(private_tag /*unused*/, std::size_t size, sampler_options options, int rank, int ranks)
      : items_(size), options_(options), rank_(rank), ranks_(ranks), indices_(deal(0)) {}

  static int checked(int rank, int ranks, std::source_location where) {
    if (rank < 0 || rank >= ranks) {
      throw usage_error({-1, 0, "distributed_sampler", 0, where},
                        "there is no rank " + std::to_string(rank) + " of " + std::to_string(ranks));
    }
    return rank;
  }

  [[nodiscard]] std::vector<std::size_t> shuffled(std::uint64_t epoch) const {
    std::vector<std::size_t> all(items_);
    std::iota(all.begin(), all.end(), std::size_t{0});
    detail::counted_random random(detail::counted_random::scramble(options_.seed) ^
                                  detail::counted_random::scramble(~epoch));
    for (std::size_t last = items_; last-- > 1;) {
      std::swap(all[last], all[static_cast<std::size_t>(random.up_to(last))]);
    }
    return all;
  }

  [[nodiscard]] std::vector<std::size_t> deal(std::uint64_t epoch) const {
    const auto rank = static_cast<std::size_t>(rank_);
    const auto ranks = static_cast<std::size_t>(ranks_);
    const std::size_t rest = items_ % ranks;
    const bool one_more = options_.tail == tail::pad ? rest != 0 : options_.tail == tail::keep && rank < rest;
    const std::size_t share = items_ / ranks + (one_more ? 1 : 0);
    const auto order = options_.shuffle ? shuffled(epoch) : std::vector<std::size_t>();
    std::vector<std::size_t> indices(share);
    for (std::size_t turn = 0; turn < share; ++turn) {
      const std::size_t number = (rank + turn * ranks) % items_;
      indices[turn] = options_.shuffle ? order[number] : number;
    }
    return indices;
  }

  std::size_t items_;
  sampler_options options_;
  int rank_;
  int ranks_;
  std::uint64_t epoch_ = 0;
  std::size_t position_ = 0;
  std::vector<std::size_t> indices_;
};

}  // namespace hfcomm
