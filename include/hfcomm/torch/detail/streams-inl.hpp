// SPDX-License-Identifier: MIT
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <concepts>
#include <optional>
#include <string>
#include <utility>

#include <hfcomm/core/config.hpp>
#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/core/stream_ref.hpp>
#include <hfcomm/torch/stream_scope.hpp>

namespace hfcomm::torch {

namespace detail {

/// Returns the stream of this thread's innermost stream_scope.
HFCOMM_PROCESS_STATE inline std::optional<stream_ref>& scoped_stream() noexcept {
  thread_local std::optional<stream_ref> stream;
  return stream;
}

/// Returns the CUDA stream behind a stream of LibTorch; nullopt where LibTorch does not tell. Its stream 0 is CUDA's.
template <class Stream>
std::optional<stream_ref> cuda_stream(const Stream& stream) {
  if constexpr (requires {
                  { stream.native_handle() } -> std::convertible_to<void*>;
                }) {
    return stream_ref(static_cast<CUstream_st*>(stream.native_handle()));
  } else {
    return stream.id() == 0 ? std::optional(stream_ref::legacy_default()) : std::nullopt;
  }
}

/// Returns the stream on which this thread's operations on a device run: that of its stream_scope, or LibTorch's
/// current one; nullopt where LibTorch has one that it does not tell.
[[nodiscard]] inline std::optional<stream_ref> stream_on(at::Device device) {
  if (scoped_stream()) {
    return scoped_stream();
  }
  if (!c10::impl::hasDeviceGuardImpl(device.type())) {
    return stream_ref::legacy_default();
  }
  return cuda_stream(c10::impl::getDeviceGuardImpl(device.type())->getStream(device));
}

/// The error text for a stream that LibTorch does not tell.
[[nodiscard]] inline std::string unknown_stream_text(at::Device device) {
  return hfcomm::detail::concat(
      {"LibTorch's current stream on the device ", device.str(),
       " is not the default one, and this version of LibTorch does not tell which it is: name it with "
       "hfcomm::torch::stream_scope"});
}

/// A scope in which a CUDA device is the current one, as LibTorch's operations make that of their tensors. Does nothing
/// for host memory, and where LibTorch has no CUDA devices.
class current_device_scope {
 public:
  explicit current_device_scope(at::Device device) {
    if (device.is_cuda() && c10::impl::hasDeviceGuardImpl(device.type())) {
      before_ = c10::impl::getDeviceGuardImpl(device.type())->exchangeDevice(device);
    }
  }
  current_device_scope(const current_device_scope&) = delete;
  current_device_scope& operator=(const current_device_scope&) = delete;
  ~current_device_scope() {
    if (before_) {
      c10::impl::getDeviceGuardImpl(before_->type())->uncheckedSetDevice(*before_);
    }
  }

 private:
  std::optional<at::Device> before_;
};

}  // namespace detail

HFCOMM_INLINE stream_scope::stream_scope(stream_ref stream) noexcept
    : before_(std::exchange(detail::scoped_stream(), stream)) {}

HFCOMM_INLINE stream_scope::~stream_scope() { detail::scoped_stream() = before_; }

}  // namespace hfcomm::torch
