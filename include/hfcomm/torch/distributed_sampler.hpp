// SPDX-License-Identifier: MIT
#pragma once

#include <torch/data/samplers/base.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <hfcomm/core/config.hpp>
#include <hfcomm/data/distributed_sampler.hpp>
#include <hfcomm/group/process_group.hpp>
#include <hfcomm/group/session.hpp>

namespace hfcomm::torch {

namespace detail {

using index_sampler = ::torch::data::samplers::Sampler<>;

/// Returns the type of the parameter of a function. (LibTorch has had two types of optional numbers.)
template <class Class, class Parameter>
Parameter parameter_of_function(void (Class::*)(Parameter));

}  // namespace detail

/// A sampler for LibTorch's data loaders that gives each rank its share of a data set: hfcomm::distributed_sampler.
///
///     hfcomm::torch::distributed_sampler sampler(dataset.size().value());
///     auto loader = torch::data::make_data_loader(std::move(dataset), sampler, 32);
///     for (std::uint64_t epoch = 0; epoch < epochs; ++epoch) {
///       sampler.set_epoch(epoch);
///       for (auto& batch : *loader) { ... }
///     }
///
/// Copies are handles of the same sampler, so that `set_epoch` reaches the one in the loader. It counts from the next
/// time that the loader begins; without it every epoch has the same order. All ranks have equally many items, unless
/// the options' `tail` is kept. Not collective. Thread-safety: one thread at a time.
class distributed_sampler final : public detail::index_sampler {
 public:
  explicit distributed_sampler(std::size_t size, sampler_options options = {}, const process_group& group = world());

  /// Sets the epoch, which the next `reset` makes the indices of.
  void set_epoch(std::uint64_t epoch);
  /// Returns the number of items of this rank in an epoch.
  [[nodiscard]] std::size_t size() const noexcept;

  /// Begins the epoch that was set; with a size, of a data set of another size. For data loaders.
  void reset(decltype(detail::parameter_of_function(&detail::index_sampler::reset)) new_size = {}) override;
  /// Returns the next items, up to `batch_size` of them; nothing at the end of the epoch.
  decltype(std::declval<detail::index_sampler&>().next(0)) next(std::size_t batch_size) override;

  /// Writes the epoch and the position in it.
  void save(::torch::serialize::OutputArchive& archive) const override;
  /// Continues where a sampler of the same options was saved, without a `reset`. Throws usage_error where it had more
  /// items.
  void load(::torch::serialize::InputArchive& archive) override;

 private:
  struct state;

  std::shared_ptr<state> state_;
};

}  // namespace hfcomm::torch
