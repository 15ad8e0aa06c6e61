// SPDX-License-Identifier: MIT
#pragma once

#include <ATen/core/Tensor.h>

#include <source_location>

#include <hfcomm/collectives/envelope.hpp>
#include <hfcomm/core/config.hpp>
#include <hfcomm/group/process_group.hpp>
#include <hfcomm/group/session.hpp>

/// Messages of LibTorch's tensors. What torch/collectives.hpp says of tensors holds for them, too.
namespace hfcomm::torch {

/// Sends a tensor's elements to one rank, and waits until that rank has received them, in a tensor or span of the same
/// type and number of elements.
void send(const at::Tensor& data, int destination, const process_group& group = world(), int tag = 0,
          std::source_location where = std::source_location::current());

/// Receives the next elements with this tag from one rank into a tensor of their type and number (mismatch_error on
/// both sides otherwise).
void recv(const at::Tensor& data, int source, const process_group& group = world(), int tag = 0,
          std::source_location where = std::source_location::current());

/// Receives elements with this tag from any rank; returns the sender.
[[nodiscard]] int recv(const at::Tensor& data, any_source_t source, const process_group& group = world(), int tag = 0,
                       std::source_location where = std::source_location::current());

}  // namespace hfcomm::torch
