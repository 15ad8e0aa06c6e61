// SPDX-License-Identifier: MIT
#pragma once

#include <concepts>
#include <cstddef>
#include <span>

#include <hfcomm/core/call_site.hpp>
#include <hfcomm/core/concepts.hpp>
#include <hfcomm/core/device_span.hpp>
#include <hfcomm/core/stream_ref.hpp>

namespace hfcomm {

namespace detail {

/// The kinds of memory that a copy goes from and to, with CUDA's numbers.
enum class copy_kind { host_to_device = 1, device_to_host = 2, device_to_device = 3 };

/// Throws usage_error where the numbers of bytes differ.
void copy_on_stream(const void* in, std::size_t in_bytes, void* out, std::size_t out_bytes, copy_kind kind,
                    stream_ref stream, const call_site& where);

}  // namespace detail

/// Copies elements on the stream: to a device, from a device, or within one. Throws usage_error where the ranges differ
/// in length. Returns at once where the host's memory is pinned; that memory must stay until the copy is done.
/// Throws engine_error where CUDA fails or is not found.
template <std::ranges::contiguous_range In, writable_device_range Out>
  requires(!device_range<In>) && std::ranges::borrowed_range<In> &&
          std::same_as<std::ranges::range_value_t<In>, device_value_t<Out>>
void copy(In&& in, Out&& out, stream_ref stream, call_site where = call_site::current()) {
  detail::copy_on_stream(std::ranges::data(in), std::ranges::size(in) * sizeof(*std::ranges::data(in)),
                         as_device_span(out).data(), as_device_span(out).size_bytes(),
                         detail::copy_kind::host_to_device, stream, where);
}
template <device_range In, std::ranges::contiguous_range Out>
  requires(!device_range<Out>) && std::ranges::borrowed_range<Out> &&
          std::same_as<std::ranges::range_value_t<Out>, device_value_t<In>>
void copy(const In& in, Out&& out, stream_ref stream, call_site where = call_site::current()) {
  detail::copy_on_stream(as_device_span(in).data(), as_device_span(in).size_bytes(), std::ranges::data(out),
                         std::ranges::size(out) * sizeof(*std::ranges::data(out)), detail::copy_kind::device_to_host,
                         stream, where);
}
template <device_range In, writable_device_range Out>
  requires std::same_as<device_value_t<In>, device_value_t<Out>>
void copy(const In& in, Out&& out, stream_ref stream, call_site where = call_site::current()) {
  detail::copy_on_stream(as_device_span(in).data(), as_device_span(in).size_bytes(), as_device_span(out).data(),
                         as_device_span(out).size_bytes(), detail::copy_kind::device_to_device, stream, where);
}

}  // namespace hfcomm
