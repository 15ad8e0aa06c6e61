// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <hfcomm/collectives/detail/message.hpp>
#include <hfcomm/core/config.hpp>
#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/device/detail/device_message.hpp>
#include <hfcomm/torch/detail/streams-inl.hpp>
#include <hfcomm/torch/detail/tensor_memory.hpp>
#include <hfcomm/torch/messages.hpp>

namespace hfcomm::torch {

namespace detail {

using hfcomm::detail::allowed_peer;

/// A message of a tensor in host memory, and its memory.
struct tensor_message {
  std::shared_ptr<engines::transfer> transfer;
  tensor_memory memory;
};

/// Returns a message to send or receive. Throws usage_error for an unusable tensor, of which a receiver is told.
HFCOMM_INLINE tensor_message message_of(engines::operation_name name, engines::movement pattern, const at::Tensor& data,
                                        int other, allowed_peer allowed, const process_group& group, message_tag tag,
                                        std::source_location where) {
  auto transfer =
      hfcomm::detail::message(tensor_call(name, pattern, data, other, where), group, pattern, other, allowed, tag);
  std::string problem = host_memory_problem(data);
  problem = problem.empty() && pattern == engines::movement::receive ? writing_problem(data) : problem;
  if (!problem.empty()) {
    hfcomm::detail::fail_message_memory(
        group, transfer->call,
        is_on_device(data) ? hfcomm::detail::concat(
                                 {problem, ": on a device there are only send, and recv from one rank without a tag"})
                           : problem);
  }
  tensor_memory memory(data);
  if (pattern == engines::movement::send) {
    transfer->data = memory.elements().bytes();
  } else {
    transfer->into = memory.elements().bytes();
  }
  return {std::move(transfer), std::move(memory)};
}

/// Returns a message to receive.
HFCOMM_INLINE tensor_message incoming(engines::operation_name name, const at::Tensor& data, message_source source,
                                      allowed_peer from_one, const process_group& group, message_tag tag,
                                      std::source_location where) {
  return message_of(name, engines::movement::receive, data, source.rank(),
                    hfcomm::detail::allowed_source(source, from_one), group, tag, where);
}

/// Receives elements; returns the envelope.
HFCOMM_INLINE message_info receive(const at::Tensor& data, message_source source, const process_group& group,
                                   message_tag tag, std::source_location where) {
  const auto message = incoming("recv", data, source, allowed_peer::other_rank, group, tag, where);
  hfcomm::detail::require_other_rank(group, message.transfer->call);
  hfcomm::detail::complete_messages(group, {&message.transfer, 1});
  message.memory.finish_writing();
  return hfcomm::detail::info_of(*message.transfer);
}

/// Starts to receive elements. The work's value is `result(transfer)`.
template <class Result>
auto start_receiving(const at::Tensor& data, message_source source, const process_group& group, message_tag tag,
                     std::source_location where, Result result) {
  auto message = incoming("irecv", data, source, allowed_peer::any_rank, group, tag, where);
  auto take = [memory = std::optional(std::move(message.memory)), result](const engines::transfer& came) mutable {
    memory->finish_writing();
    memory.reset();
    return result(came);
  };
  return hfcomm::detail::start_message(group, message.transfer, std::move(take));
}

/// Returns whether a message is one between devices. Otherwise its tensor may be unusable.
HFCOMM_INLINE bool is_device_message(const at::Tensor& data, int tag) { return is_on_device(data) && tag == 0; }

/// Sends or receives on the device's stream. Throws usage_error for an unusable tensor.
HFCOMM_INLINE void device_message_of(engines::operation_name name, engines::movement pattern, const at::Tensor& data,
                                     int other, const process_group& group, std::source_location where) {
  const auto stream = stream_on(data.device());
  const std::string problem = stream ? memory_problem(data) : unknown_stream_text(data.device());
  if (!problem.empty()) {
    hfcomm::detail::fail_message(group, tensor_call(name, pattern, data, other, where), problem);
  }
  const current_device_scope current(data.device());
  const tensor_memory memory(data);
  const hfcomm::detail::message_side side{memory.elements(), other};
  const bool sends = pattern == engines::movement::send;
  hfcomm::detail::device_message(name, pattern, sends ? &side : nullptr, sends ? nullptr : &side,
                                 hfcomm::detail::on_stream{*stream}, group, where);
  if (!sends) {
    memory.finish_writing();
  }
}

}  // namespace detail

HFCOMM_INLINE void send(const at::Tensor& data, int destination, hfcomm::detail::group_or_tag first,
                        hfcomm::detail::group_or_tag second, std::source_location where) {
  const auto& [group, tag] = hfcomm::detail::message_place(first, second, where);
  if (detail::is_device_message(data, tag)) {
    detail::device_message_of("device send", engines::movement::send, data, destination, group, where);
    return;
  }
  const auto message = detail::message_of("send", engines::movement::send, data, destination,
                                          detail::allowed_peer::other_rank, group, tag, where);
  hfcomm::detail::complete_messages(group, {&message.transfer, 1});
}

HFCOMM_INLINE void recv(const at::Tensor& data, int source, hfcomm::detail::group_or_tag first,
                        hfcomm::detail::group_or_tag second, std::source_location where) {
  const auto& [group, tag] = hfcomm::detail::message_place(first, second, where);
  if (detail::is_device_message(data, tag)) {
    detail::device_message_of("device recv", engines::movement::receive, data, source, group, where);
    return;
  }
  (void)detail::receive(data, source, group, tag, where);
}

HFCOMM_INLINE int recv(const at::Tensor& data, any_source_t source, hfcomm::detail::group_or_tag first,
                       hfcomm::detail::group_or_tag second, std::source_location where) {
  const auto& [group, tag] = hfcomm::detail::message_place(first, second, where);
  return detail::receive(data, source, group, tag, where).source;
}

HFCOMM_INLINE message_info recv(const at::Tensor& data, message_source source, const process_group& group,
                                any_tag_t tag, std::source_location where) {
  return detail::receive(data, source, group, tag, where);
}

HFCOMM_INLINE work<void> isend(const at::Tensor& data, int destination, hfcomm::detail::group_or_tag first,
                               hfcomm::detail::group_or_tag second, std::source_location where) {
  const auto& [group, tag] = hfcomm::detail::message_place(first, second, where);
  auto message = detail::message_of("isend", engines::movement::send, data, destination, detail::allowed_peer::any_rank,
                                    group, tag, where);
  auto keep = [memory = std::optional(std::move(message.memory))](const engines::transfer& /*sent*/) mutable {
    memory.reset();
  };
  return hfcomm::detail::start_message(group, message.transfer, std::move(keep));
}

HFCOMM_INLINE work<void> irecv(const at::Tensor& data, int source, hfcomm::detail::group_or_tag first,
                               hfcomm::detail::group_or_tag second, std::source_location where) {
  const auto& [group, tag] = hfcomm::detail::message_place(first, second, where);
  return detail::start_receiving(data, source, group, tag, where, [](const engines::transfer& /*came*/) {});
}

HFCOMM_INLINE work<int> irecv(const at::Tensor& data, any_source_t source, hfcomm::detail::group_or_tag first,
                              hfcomm::detail::group_or_tag second, std::source_location where) {
  const auto& [group, tag] = hfcomm::detail::message_place(first, second, where);
  return detail::start_receiving(data, source, group, tag, where,
                                 [](const engines::transfer& came) { return came.source; });
}

HFCOMM_INLINE work<message_info> irecv(const at::Tensor& data, message_source source, const process_group& group,
                                       any_tag_t tag, std::source_location where) {
  return detail::start_receiving(data, source, group, tag, where,
                                 [](const engines::transfer& came) { return hfcomm::detail::info_of(came); });
}

}  // namespace hfcomm::torch
