// SPDX-License-Identifier: MIT
#pragma once

#include <ATen/core/Tensor.h>

#include <source_location>

#include <hfcomm/group/process_group.hpp>

namespace hfcomm::torch::detail {

/// Returns the sum of the ranks' sparse gradients, in rank order, divided by the group's size, with the same bits on
/// every rank. An undefined gradient adds nothing; the result is undefined where no rank has one. Collective.
[[nodiscard]] at::Tensor average_sparse(const at::Tensor& parameter, const process_group& group,
                                        std::source_location where);

}  // namespace hfcomm::torch::detail
