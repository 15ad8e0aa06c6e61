// SPDX-License-Identifier: MIT
#pragma once

#include <ATen/core/Tensor.h>

#include <hfcomm/collectives/detail/message_place.hpp>
#include <hfcomm/collectives/envelope.hpp>
#include <hfcomm/core/call_site.hpp>
#include <hfcomm/core/config.hpp>
#include <hfcomm/group/process_group.hpp>
#include <hfcomm/group/session.hpp>
#include <hfcomm/group/work.hpp>

/// Messages of LibTorch's tensors. What torch/collectives.hpp says of tensors holds for them, too.
///
/// On a device, messages are those of <hfcomm/nccl.hpp>: `send` and `recv` run on LibTorch's current stream and return
/// at once. They have no tags and no unknown senders; those, `isend` and `irecv` of device tensors are a usage_error.
namespace hfcomm::torch {

namespace detail {

using hfcomm::detail::group_or_tag;

}  // namespace detail

/// Sends a tensor's elements to one rank, and waits until that rank has received them, in a tensor or span of the same
/// type and number of elements.
void send(const at::Tensor& data, int destination, detail::group_or_tag first = {}, detail::group_or_tag second = {},
          call_site where = call_site::current());

/// Receives the next elements with this tag from one rank into a tensor of their type and number (mismatch_error on
/// both sides otherwise).
void recv(const at::Tensor& data, int source, detail::group_or_tag first = {}, detail::group_or_tag second = {},
          call_site where = call_site::current());

/// Receives elements with this tag from any rank; returns the sender.
[[nodiscard]] int recv(const at::Tensor& data, any_source_t source, detail::group_or_tag first = {},
                       detail::group_or_tag second = {}, call_site where = call_site::current());

/// Receives the next elements from one rank or from any, whatever their tag; returns the sender and the tag.
message_info recv(const at::Tensor& data, message_source source, const process_group& group, any_tag_t tag,
                  call_site where = call_site::current());

/// Starts to send a tensor's elements, which must stay untouched until the work is done; it keeps their memory. A
/// tensor that is not contiguous is copied at once.
work<void> isend(const at::Tensor& data, int destination, detail::group_or_tag first = {},
                 detail::group_or_tag second = {}, call_site where = call_site::current());

/// Starts to receive elements into a tensor, whose memory the work keeps. One that is not contiguous gets them just
/// before the work is done.
work<void> irecv(const at::Tensor& data, int source, detail::group_or_tag first = {}, detail::group_or_tag second = {},
                 call_site where = call_site::current());

/// Starts to receive elements from any rank, this one included; the work's value is the sender.
work<int> irecv(const at::Tensor& data, any_source_t source, detail::group_or_tag first = {},
                detail::group_or_tag second = {}, call_site where = call_site::current());

/// Starts to receive elements whatever their tag; the work's value is the sender and the tag.
work<message_info> irecv(const at::Tensor& data, message_source source, const process_group& group, any_tag_t tag,
                         call_site where = call_site::current());

}  // namespace hfcomm::torch
