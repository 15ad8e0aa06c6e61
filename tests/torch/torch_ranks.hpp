// SPDX-License-Identifier: MIT
#pragma once

#include "torch_doctest.hpp"

#include "../multi_rank/ranks.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <hfcomm/torch.hpp>

/// Helpers of the tests with LibTorch, whose ranks are threads.
namespace torch_ranks {

using namespace multi_rank;

/// Runs `rank_main(world)` with 1, 2 and 3 ranks, or from `least` on. One thread of LibTorch for each.
inline void at_each_size(hfcomm::function_ref<void(const process_group&)> rank_main, int least = 1) {
  at::set_num_threads(1);
  for (int ranks = least; ranks <= 3; ++ranks) {
    run_noted(ranks, "with LibTorch", rank_main);
  }
}

/// Returns the elements of a tensor as bytes.
inline std::vector<std::byte> bytes_of(const at::Tensor& tensor) {
  const at::Tensor whole = tensor.detach().contiguous();
  const auto* first = static_cast<const std::byte*>(whole.data_ptr());
  return {first, first + whole.nbytes()};
}

/// Checks that all ranks have a tensor of the same bits.
inline void check_same_tensor(const at::Tensor& tensor, const process_group& world) {
  REQUIRE(tensor.defined());
  check_same_everywhere(bytes_of(tensor), world);
}

/// Returns the largest difference of two tensors, relative to the largest element of the second.
inline double difference(const at::Tensor& found, const at::Tensor& expected) {
  const double scale = expected.abs().max().item<double>();
  return (found - expected).abs().max().item<double>() / (scale == 0 ? 1 : scale);
}

/// Numbers that look random, and are the same in each call, on any thread.
inline at::Tensor numbers(std::vector<std::int64_t> sizes, at::ScalarType type = at::kFloat, double start = 0) {
  std::int64_t count = 1;
  for (const std::int64_t size : sizes) {
    count *= size;
  }
  return (at::arange(count, at::kDouble) * 12.9898 + start).sin().reshape(sizes).to(type);
}

/// Returns this rank's share of a batch, whose first dimension is divided evenly.
inline at::Tensor share_of(const at::Tensor& batch, const process_group& world) {
  const std::int64_t rows = batch.size(0) / world.size();
  return batch.narrow(0, rows * world.rank(), rows);
}

/// Sets a module's parameters to numbers that differ from rank to rank.
inline void set_parameters(torch::nn::Module& module, int rank) {
  const at::NoGradGuard no_grad;
  double start = rank;
  for (auto& parameter : module.parameters()) {
    parameter.copy_(0.4 * numbers(parameter.sizes().vec(), at::kDouble, start));
    start += 0.7;
  }
}

}  // namespace torch_ranks
