// SPDX-License-Identifier: MIT
#pragma once

/// All definitions that <hfcomm/nccl.hpp> only declares, and the device engines.

#include <memory>

#include <hfcomm/nccl.hpp>

#include <hfcomm/cuda/detail/copy-inl.hpp>
#include <hfcomm/cuda/detail/device_event-inl.hpp>
#include <hfcomm/cuda/detail/owned_memory-inl.hpp>
#include <hfcomm/device/detail/barrier-inl.hpp>
#include <hfcomm/device/detail/connect_device-inl.hpp>
#include <hfcomm/device/detail/device_message-inl.hpp>
#include <hfcomm/device/detail/device_watch-inl.hpp>
#include <hfcomm/device/detail/device_work-inl.hpp>
#include <hfcomm/device/detail/registered_buffer-inl.hpp>
#include <hfcomm/engine/device/copy_streams.hpp>
#include <hfcomm/engine/nccl/nccl.hpp>
#include <hfcomm/engine/nccl/one_device.hpp>

namespace hfcomm::detail {

HFCOMM_INLINE std::shared_ptr<device_engine> make_nccl_engine(const std::shared_ptr<host_engine>& host,
                                                              const operation& call) {
  const auto& cuda = cuda::runtime(call.where);
  if (host->size() == 1) {
    return std::make_shared<engines::one_device>(host, cuda);
  }
  return std::make_shared<engines::nccl>(host, cuda, cuda::nccl(call.where));
}

HFCOMM_INLINE std::unique_ptr<device_copies> make_copy_streams(const error_context& context) {
  return std::make_unique<engines::copy_streams>(cuda::runtime(context.where), context);
}

/// Registers the device engines and the copies, before main.
inline const bool has_device_engines = [] {
  device_engines().store(&make_nccl_engine);
  device_copies_maker().store(&make_copy_streams);
  return true;
}();

}  // namespace hfcomm::detail
