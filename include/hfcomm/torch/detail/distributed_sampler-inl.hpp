// SPDX-License-Identifier: MIT
#pragma once

#include <torch/serialize/archive.h>
#include <torch/types.h>

#include <algorithm>
#include <utility>
#include <vector>

#include <hfcomm/core/config.hpp>
#include <hfcomm/torch/distributed_sampler.hpp>

namespace hfcomm::torch {

struct distributed_sampler::state {
  state(std::size_t items, sampler_options its_options, const process_group& group)
      : options(its_options), rank(group.rank()), ranks(group.size()), sampler(items, options, rank, ranks) {}

  sampler_options options;
  int rank;
  int ranks;
  hfcomm::distributed_sampler sampler;
  std::uint64_t next_epoch = 0;
  std::size_t position = 0;  // of this rank's indices
};

HFCOMM_INLINE distributed_sampler::distributed_sampler(std::size_t size, sampler_options options,
                                                       const process_group& group)
    : state_(std::make_shared<state>(size, options, group)) {}

HFCOMM_INLINE void distributed_sampler::set_epoch(std::uint64_t epoch) { state_->next_epoch = epoch; }

HFCOMM_INLINE std::size_t distributed_sampler::size() const noexcept { return state_->sampler.size(); }

HFCOMM_INLINE void distributed_sampler::reset(
    decltype(detail::parameter_of_function(&detail::index_sampler::reset)) new_size) {
  if (new_size) {
    state_->sampler = hfcomm::distributed_sampler(*new_size, state_->options, state_->rank, state_->ranks);
  }
  state_->sampler.set_epoch(state_->next_epoch);
  state_->position = 0;
}

HFCOMM_INLINE decltype(std::declval<detail::index_sampler&>().next(0)) distributed_sampler::next(
    std::size_t batch_size) {
  const auto left = state_->sampler.indices().subspan(state_->position);
  if (left.empty()) {
    return {};
  }
  const auto batch = left.first(std::min(batch_size, left.size()));
  state_->position += batch.size();
  return std::vector<std::size_t>(batch.begin(), batch.end());
}

HFCOMM_INLINE void distributed_sampler::save(::torch::serialize::OutputArchive& archive) const {
  const auto write = [&](const char* name, std::uint64_t number) {
    archive.write(name, at::tensor(static_cast<std::int64_t>(number), at::kLong), true);
  };
  write("epoch", state_->sampler.epoch());
  write("position", state_->position);
}

HFCOMM_INLINE void distributed_sampler::load(::torch::serialize::InputArchive& archive) {
  const auto read = [&](const char* name) {
    at::Tensor number = at::empty({1}, at::kLong);
    archive.read(name, number, true);
    return static_cast<std::uint64_t>(number.item<std::int64_t>());
  };
  hfcomm::distributed_sampler continued = state_->sampler;
  continued.set_epoch(read("epoch"));
  continued.start_at(read("position"));
  state_->sampler = std::move(continued);
  state_->next_epoch = state_->sampler.epoch();
  state_->position = state_->sampler.position();
}

}  // namespace hfcomm::torch
