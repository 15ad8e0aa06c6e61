// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include <hfcomm/core/config.hpp>
#include <hfcomm/cuda/copy.hpp>
#include <hfcomm/cuda/runtime_api.hpp>

namespace hfcomm::detail {

HFCOMM_INLINE cudaMemcpyKind memcpy_kind(copy_kind kind) noexcept {
  switch (kind) {
    case copy_kind::host_to_device: return cudaMemcpyHostToDevice;
    case copy_kind::device_to_host: return cudaMemcpyDeviceToHost;
    case copy_kind::device_to_device: break;
  }
  return cudaMemcpyDeviceToDevice;
}

HFCOMM_INLINE void copy_on_stream(const void* in, std::size_t in_bytes, void* out, std::size_t out_bytes,
                                  copy_kind kind, stream_ref stream, const std::source_location& where) {
  if (in_bytes != out_bytes) {
    throw_error<usage_error>({-1, 0, "copy", 0, where}, {"the input has ", in_bytes, " bytes, the output ", out_bytes});
  }
  const auto& api = cuda::runtime(where);
  if (in_bytes != 0) {
    api.check(api.cudaMemcpyAsync(out, in, in_bytes, memcpy_kind(kind), stream.get()), "cudaMemcpyAsync", where);
  }
}

}  // namespace hfcomm::detail
