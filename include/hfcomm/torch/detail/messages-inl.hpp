// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <string>

#include <hfcomm/collectives/detail/message.hpp>
#include <hfcomm/core/config.hpp>
#include <hfcomm/torch/detail/tensor_memory.hpp>
#include <hfcomm/torch/messages.hpp>

namespace hfcomm::torch {

namespace detail {

/// Throws usage_error for a tensor without elements in host memory, after telling the receiver of a message.
HFCOMM_INLINE void require_message_tensor(const process_group& group, const engines::operation& call,
                                          const at::Tensor& data) {
  if (const std::string problem = memory_problem(data); !problem.empty()) {
    hfcomm::detail::fail_message_memory(group, call, problem);
  }
}

/// Receives elements; returns the sender.
HFCOMM_INLINE int receive(const at::Tensor& data, message_source source, hfcomm::detail::allowed_peer allowed,
                          const process_group& group, int tag, std::source_location where) {
  const auto pattern = engines::movement::receive;
  const auto message = hfcomm::detail::message(tensor_call("recv", pattern, data, source.rank(), where), group, pattern,
                                               source.rank(), allowed, tag);
  hfcomm::detail::require_other_rank(group, message->call);
  require_message_tensor(group, message->call, data);
  const tensor_memory memory(data);
  message->into = memory.elements().bytes();
  hfcomm::detail::complete_messages(group, {&message, 1});
  memory.finish_writing();
  return message->source;
}

}  // namespace detail

HFCOMM_INLINE void send(const at::Tensor& data, int destination, const process_group& group, int tag,
                        std::source_location where) {
  const auto pattern = engines::movement::send;
  const auto message = hfcomm::detail::message(detail::tensor_call("send", pattern, data, destination, where), group,
                                               pattern, destination, hfcomm::detail::allowed_peer::other_rank, tag);
  detail::require_message_tensor(group, message->call, data);
  const detail::tensor_memory memory(data);
  message->data = memory.elements().bytes();
  hfcomm::detail::complete_messages(group, {&message, 1});
}

HFCOMM_INLINE void recv(const at::Tensor& data, int source, const process_group& group, int tag,
                        std::source_location where) {
  detail::receive(data, source, hfcomm::detail::allowed_peer::other_rank, group, tag, where);
}

HFCOMM_INLINE int recv(const at::Tensor& data, any_source_t source, const process_group& group, int tag,
                       std::source_location where) {
  return detail::receive(data, source, hfcomm::detail::allowed_peer::unknown, group, tag, where);
}

}  // namespace hfcomm::torch
