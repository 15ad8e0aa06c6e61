// SPDX-License-Identifier: MIT
#pragma once

#include <c10/core/InferenceMode.h>
#include <torch/types.h>

#include <vector>

#include <hfcomm/torch/detail/tensor_memory.hpp>

namespace hfcomm::torch::detail {

/// Returns a tensor for `ranks` tensors like `data`. An unusable `data` is returned as it is, to be refused.
[[nodiscard]] inline at::Tensor table_for(const at::Tensor& data, int ranks) {
  if (!memory_problem(data).empty()) {
    return data;
  }
  auto sizes = data.sizes().vec();
  sizes.insert(sizes.begin(), ranks);
  return at::empty(sizes, data.options().requires_grad(false));
}

/// Returns the tensors in such a tensor, which autograd takes for independent ones; none for an undefined one. They are
/// inference tensors where the table is one, whatever the mode of the thread.
[[nodiscard]] inline std::vector<at::Tensor> tensors_in(const at::Tensor& table) {
  const c10::InferenceMode mode(table.defined() && table.is_inference());
  std::vector<at::Tensor> tensors;
  for (const at::Tensor& row : table.defined() ? table.unbind(0) : tensors) {
    const auto drop = [memory = table](void* /*address*/) mutable { memory.reset(); };
    tensors.push_back(at::from_blob(row.data_ptr(), row.sizes(), row.strides(), drop, table.options(), table.device()));
  }
  return tensors;
}

}  // namespace hfcomm::torch::detail
