// SPDX-License-Identifier: MIT
#pragma once

#include <torch/types.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <source_location>
#include <span>

#include <hfcomm/collectives/all_gather_v.hpp>
#include <hfcomm/group/process_group.hpp>

namespace hfcomm::torch::detail {

/// Returns the sum of the ranks' sparse gradients, in rank order, divided by the group's size, with the same bits on
/// every rank. An undefined gradient adds nothing; the result is undefined where no rank has one. Collective.
[[nodiscard]] inline at::Tensor average_sparse(const at::Tensor& parameter, const process_group& group,
                                               std::source_location where) {
  const at::NoGradGuard no_grad;
  // The gradient of a weight has one row for each index; those of a row come from one sample or more.
  at::Tensor rows = at::empty({0}, at::kLong);
  at::Tensor values = at::empty({0}, parameter.options());
  if (parameter.grad().defined()) {
    const at::Tensor mine = parameter.grad().detach().coalesce();
    rows = mine.indices().contiguous();
    values = mine.values().contiguous();
  }
  const auto* first_row = static_cast<const std::int64_t*>(rows.data_ptr());
  const auto all_rows = all_gather_v(std::span(first_row, static_cast<std::size_t>(rows.numel())), group, where);
  const auto* first_byte = static_cast<const std::byte*>(values.data_ptr());
  const auto all_values = all_gather_v(std::span(first_byte, values.nbytes()), group, where);
  if (all_rows.elements.empty()) {
    return parameter.grad();
  }
  auto sizes = parameter.sizes().vec();
  sizes.front() = static_cast<std::int64_t>(all_rows.elements.size());
  at::Tensor indices = at::empty({1, sizes.front()}, at::kLong);
  std::memcpy(indices.data_ptr(), all_rows.elements.data(), indices.nbytes());
  at::Tensor elements = at::empty(sizes, parameter.options());
  std::memcpy(elements.data_ptr(), all_values.elements.data(), elements.nbytes());
  at::Tensor sum = at::sparse_coo_tensor(indices, elements, parameter.sizes()).coalesce();
  sum.values().div_(group.size());
  return sum;
}

}  // namespace hfcomm::torch::detail
