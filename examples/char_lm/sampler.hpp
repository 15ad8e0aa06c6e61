// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include "char_lm/random.hpp"

namespace char_lm {

/// How a text is used. A position stands for the example "predict the character here from the `context` before it".
/// Training examples are the positions [context, train_end), held-out ones [train_end, size): their targets are
/// never trained on.
struct text_split {
  std::size_t context = 0;
  std::size_t train_end = 0;
  std::size_t size = 0;
  /// What the user should be told about a short text; empty otherwise.
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

/// The positions that all ranks together train on at `step`, drawn with replacement. They depend on nothing but the
/// arguments, so the same run on another number of ranks sees the same examples.
inline std::vector<std::size_t> global_batch(const text_split& split, std::uint64_t step, std::size_t batch_size,
                                             std::uint64_t seed) {
  random_source random(mix(mix(seed) + step));
  std::vector<std::size_t> positions(batch_size);
  for (auto& position : positions)
    position = split.context + random.below(split.train_count());
  return positions;
}

/// The contiguous part of `total` items that is one rank's: [first, last).
struct share {
  std::size_t first = 0;
  std::size_t last = 0;
  /// What to multiply the mean over this share with, so that the plain average over all ranks is the mean over all
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

/// This rank's share of global_batch().
inline std::vector<std::size_t> rank_batch(const text_split& split, std::uint64_t step, std::size_t batch_size,
                                           std::uint64_t seed, const share& part) {
  const auto all = global_batch(split, step, batch_size, seed);
  return {all.begin() + static_cast<std::ptrdiff_t>(part.first), all.begin() + static_cast<std::ptrdiff_t>(part.last)};
}

/// This rank's share of the held-out positions.
inline std::vector<std::size_t> held_out_batch(const text_split& split, const share& part) {
  std::vector<std::size_t> positions(part.count());
  std::iota(positions.begin(), positions.end(), split.train_end + part.first);
  return positions;
}

}  // namespace char_lm
