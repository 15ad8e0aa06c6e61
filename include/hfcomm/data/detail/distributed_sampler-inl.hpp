// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <source_location>
#include <string>
#include <utility>
#include <vector>

#include <hfcomm/core/config.hpp>
#include <hfcomm/core/error.hpp>
#include <hfcomm/data/detail/splitmix64.hpp>
#include <hfcomm/data/distributed_sampler.hpp>

namespace hfcomm {

HFCOMM_INLINE distributed_sampler::distributed_sampler(std::size_t size, sampler_options options,
                                                       const process_group& group)
    : distributed_sampler(size, options, group.rank(), group.size()) {}

HFCOMM_INLINE distributed_sampler::distributed_sampler(std::size_t size, sampler_options options, int rank, int ranks,
                                                       std::source_location where)
    : items_(size), options_(options), rank_(rank), ranks_(ranks) {
  if (rank < 0 || rank >= ranks) {
    detail::throw_error<usage_error>({-1, 0, "distributed_sampler", 0, where},
                                     {"there is no rank ", rank, " of ", ranks});
  }
  indices_ = indices_of(0);
}

HFCOMM_INLINE void distributed_sampler::set_epoch(std::uint64_t epoch) {
  if (epoch != epoch_ && options_.shuffle) {
    indices_ = indices_of(epoch);
  }
  epoch_ = epoch;
  position_ = 0;
}

HFCOMM_INLINE void distributed_sampler::start_at(std::size_t position, std::source_location where) {
  if (position > size()) {
    detail::throw_error<usage_error>({rank_, ranks_, "distributed_sampler::start_at", 0, where},
                                     {"position ", position, " is beyond the ", size(), " items of this rank"});
  }
  position_ = position;
}

/// Returns all items in the random order of an epoch.
HFCOMM_INLINE std::vector<std::size_t> distributed_sampler::shuffled(std::uint64_t epoch) const {
  std::vector<std::size_t> all(items_);
  std::iota(all.begin(), all.end(), std::size_t{0});
  detail::splitmix64 random(detail::splitmix64::hash(options_.seed) ^ detail::splitmix64::hash(~epoch));
  for (std::size_t last = items_; last-- > 1;) {
    std::swap(all[last], all[static_cast<std::size_t>(random.up_to(last))]);
  }
  return all;
}

/// Returns this rank's items of an epoch.
HFCOMM_INLINE std::vector<std::size_t> distributed_sampler::indices_of(std::uint64_t epoch) const {
  const auto rank = static_cast<std::size_t>(rank_);
  const auto ranks = static_cast<std::size_t>(ranks_);
  const std::size_t rest = items_ % ranks;
  const bool one_more = options_.tail == tail::pad ? rest != 0 : options_.tail == tail::keep && rank < rest;
  const std::size_t share = items_ / ranks + (one_more ? 1 : 0);
  const auto order = options_.shuffle ? shuffled(epoch) : std::vector<std::size_t>();
  std::vector<std::size_t> indices(share);
  for (std::size_t turn = 0; turn < share; ++turn) {
    const std::size_t position = (rank + turn * ranks) % items_;
    indices[turn] = options_.shuffle ? order[position] : position;
  }
  return indices;
}

}  // namespace hfcomm
