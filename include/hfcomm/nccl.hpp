// SPDX-License-Identifier: MIT
#pragma once

/// The device plane: pulls in the headers of NCCL and CUDA. <hfcomm/comm.hpp> includes it where HFCOMM_NCCL is defined,
/// which the Meson option `nccl` sees to. One translation unit of a program is enough; none calls a function of the two
/// libraries by name, so there is nothing to link with.

#include <memory>

#include <hfcomm/core/device_span.hpp>
#include <hfcomm/core/stream_ref.hpp>
#include <hfcomm/cuda/copy.hpp>
#include <hfcomm/cuda/device_buffer.hpp>
#include <hfcomm/cuda/device_event.hpp>
#include <hfcomm/cuda/element_types.hpp>
#include <hfcomm/cuda/pinned_buffer.hpp>
#include <hfcomm/engine/device/one_device.hpp>
#include <hfcomm/engine/nccl/nccl.hpp>

namespace hfcomm::detail {

inline std::shared_ptr<device_engine> make_device_engine(const std::shared_ptr<host_engine>& host,
                                                         const operation& call) {
  const auto& cuda = cuda::runtime(call.where);
  if (host->size() == 1) {
    return std::make_shared<engines::one_device>(host, cuda);
  }
  return std::make_shared<engines::nccl>(host, cuda, cuda::nccl(call.where));
}

/// Before main.
inline const bool has_device_engines = [] {
  device_engines().store(&make_device_engine);
  return true;
}();

}  // namespace hfcomm::detail
