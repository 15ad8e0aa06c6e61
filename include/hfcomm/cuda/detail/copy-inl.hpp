// SPDX-License-Identifier: MIT
#pragma once

#include <hfcomm/core/config.hpp>
#include <hfcomm/cuda/copy.hpp>
#include <hfcomm/cuda/runtime_api.hpp>

namespace hfcomm::detail {

static_assert(static_cast<cudaMemcpyKind>(copy_kind::host_to_device) == cudaMemcpyHostToDevice &&
              static_cast<cudaMemcpyKind>(copy_kind::device_to_host) == cudaMemcpyDeviceToHost &&
              static_cast<cudaMemcpyKind>(copy_kind::device_to_device) == cudaMemcpyDeviceToDevice);

HFCOMM_INLINE void copy_on_stream(const void* in, std::size_t in_bytes, void* out, std::size_t out_bytes,
                                  copy_kind kind, stream_ref stream, const std::source_location& where) {
  if (in_bytes != out_bytes) {
    throw_error<usage_error>({-1, 0, "copy", 0, where}, {"the input has ", in_bytes, " bytes, the output ", out_bytes});
  }
  const auto& api = cuda::runtime(where);
  if (in_bytes != 0) {
    api.check(api.cudaMemcpyAsync(out, in, in_bytes, static_cast<cudaMemcpyKind>(kind), stream.get()),
              "cudaMemcpyAsync", where);
  }
}

}  // namespace hfcomm::detail
