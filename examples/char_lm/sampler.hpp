// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <hfcomm/data/distributed_sampler.hpp>

namespace char_lm {

/// How a text is used. A position stands for the example "predict the character here from the `context` before it".
/// Training examples are the positions [context, train_end), held-out ones [train_end, size): their targets are
/// never trained on.
struct text_split {
  std::size_t context = 0;
  std::size_t train_end = 0;
  std::size_t size = 0;
  /// A note to the user about a short text; empty otherwise.
  std::string note;

  [[nodiscard]] std::size_t train_count() const noexcept { return train_end - context; }
  [[nodiscard]] std::size_t held_out_count() const noexcept { return size - train_end; }
};

/// The shortest text that split_text() accepts, in bytes.
inline constexpr std::size_t minimum_text_size = 16;

/// Splits a text of `size` bytes: the last 10 % are held out. A text too short for `context` gets a shorter one, and a
/// note that says so. Throws std::invalid_argument for a text below minimum_text_size or a context of 0.
inline text_split split_text(std::size_t size, std::size_t context) {
  if (context == 0)
    throw std::invalid_argument("the context must be at least 1 character");
  if (size < minimum_text_size) {
    throw std::invalid_argument("the text has " + std::to_string(size) + (size == 1 ? " byte" : " bytes") +
                                ": training needs at least " + std::to_string(minimum_text_size));
  }
  text_split split;
  split.size = size;
  split.train_end = size - std::max<std::size_t>(1, size / 10);
  // Three quarters of a short text stay examples; a long text is not affected.
  split.context = std::min(context, split.train_end / 4);
  if (split.context < context) {
    split.note = "the text has only " + std::to_string(size) + " bytes: the context is " +
                 std::to_string(split.context) + " characters instead of " + std::to_string(context);
  }
  return split;
}

/// The contiguous part of `total` items that is one rank's: [first, last).
struct share {
  std::size_t first = 0;
  std::size_t last = 0;
  /// The factor for the mean over this share, so that the plain average over all ranks is the mean over all
  /// items: count * world_size / total. Exactly 1 for even shares, 0 for an empty one.
  float weight = 0.0F;

  [[nodiscard]] std::size_t count() const noexcept { return last - first; }
};

/// Rank r of n gets [r * total / n, (r + 1) * total / n): shares differ by one item at most and may be empty.
/// Throws std::invalid_argument for a rank outside [0, world_size) or a total of 0.
inline share share_of(std::size_t total, int rank, int world_size) {
  if (world_size < 1 || rank < 0 || rank >= world_size) {
    throw std::invalid_argument("rank " + std::to_string(rank) + " of " + std::to_string(world_size) +
                                " does not exist");
  }
  if (total == 0)
    throw std::invalid_argument("a batch needs at least 1 example");
  const auto ranks = static_cast<std::size_t>(world_size);
  const auto r = static_cast<std::size_t>(rank);
  share part{r * total / ranks, (r + 1) * total / ranks, 0.0F};
  part.weight = static_cast<float>(static_cast<double>(part.count() * ranks) / static_cast<double>(total));
  return part;
}

/// This rank's share of the held-out positions.
inline std::vector<std::size_t> held_out_batch(const text_split& split, const share& part) {
  std::vector<std::size_t> positions(part.count());
  std::iota(positions.begin(), positions.end(), split.train_end + part.first);
  return positions;
}

/// Examples, and the factor for the mean over them.
struct batch_piece {
  std::span<const std::size_t> positions;
  float weight = 0.0F;
};

/// The examples of one rank in one step.
struct rank_batch {
  std::vector<std::size_t> positions;
  /// The factor of the share, so that the average over the ranks is the mean over the whole batch.
  float weight = 0.0F;

  /// The piece of one of several passes. Its weight is in proportion to its examples.
  [[nodiscard]] batch_piece piece(std::size_t pass, std::size_t passes) const {
    const std::size_t first = positions.size() * pass / passes;
    const std::size_t last = positions.size() * (pass + 1) / passes;
    if (positions.empty()) {
      return {};
    }
    return {std::span(positions).subspan(first, last - first),
            weight * static_cast<float>(last - first) / static_cast<float>(positions.size())};
  }
};

/// Which training examples each rank takes in which step. The batches of all ranks together follow one another through
/// the epochs' random orders, and every example comes once in each epoch. A step's examples depend on nothing but
/// split, step, batch size and seed, so the same run on another number of ranks sees the same ones.
class batch_sampler {
 public:
  /// `batch_size` is that of all ranks together.
  batch_sampler(const text_split& split, std::size_t batch_size, std::uint64_t seed, int rank, int world_size)
      : context_(split.context),
        train_count_(split.train_count()),
        batch_size_(batch_size),
        rank_(static_cast<std::size_t>(rank)),
        world_size_(static_cast<std::size_t>(world_size)),
        examples_(train_count_, {.seed = seed}, rank, world_size) {}

  [[nodiscard]] rank_batch at(std::size_t step) {
    rank_batch mine;
    for (std::size_t next = step * batch_size_, left = batch_size_; left > 0;) {
      const std::size_t from = next % train_count_;
      const std::size_t count = std::min(left, train_count_ - from);
      examples_.set_epoch(next / train_count_);
      // Only numbers of the epoch are asked for, so none of the sampler's padding comes along.
      for (const auto example : examples_.indices().subspan(own_count(from), own_count(from + count) - own_count(from)))
        mine.positions.push_back(context_ + example);
      next += count;
      left -= count;
    }
    mine.weight =
        static_cast<float>(static_cast<double>(mine.positions.size() * world_size_) / static_cast<double>(batch_size_));
    return mine;
  }

 private:
  /// How many of an epoch's first `count` examples are this rank's: rank r has numbers r, r + world size, ...
  [[nodiscard]] std::size_t own_count(std::size_t count) const noexcept {
    return (count + world_size_ - 1 - rank_) / world_size_;
  }

  std::size_t context_;
  std::size_t train_count_;
  std::size_t batch_size_;
  std::size_t rank_;
  std::size_t world_size_;
  hfcomm::distributed_sampler examples_;
};

}  // namespace char_lm
