// SPDX-License-Identifier: MIT
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>

#include <hfcomm/core/stream_ref.hpp>

namespace hfcomm::torch::detail {

/// Returns the stream on which this thread's operations on a device run: that of its stream_scope, or LibTorch's
/// current one; nullopt where LibTorch has one that it does not tell.
[[nodiscard]] std::optional<stream_ref> stream_on(at::Device device);

/// The error text for a stream that LibTorch does not tell.
[[nodiscard]] std::string unknown_stream_text(at::Device device);

/// A scope in which a CUDA device is the current one, as LibTorch's operations make that of their tensors. Does nothing
/// for host memory, and where LibTorch has no CUDA devices.
class current_device_scope {
 public:
  explicit current_device_scope(at::Device device);
  current_device_scope(const current_device_scope&) = delete;
  current_device_scope& operator=(const current_device_scope&) = delete;
  ~current_device_scope();

 private:
  std::optional<at::Device> before_;
};

}  // namespace hfcomm::torch::detail
