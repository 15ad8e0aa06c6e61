// SPDX-License-Identifier: MIT
#pragma once

#include <hfcomm/core/config.hpp>
#include <hfcomm/device/connect_device.hpp>
#include <hfcomm/device/detail/device_call.hpp>
#include <hfcomm/group/detail/group_state.hpp>

namespace hfcomm {

HFCOMM_INLINE void connect_device(const process_group& group, std::source_location where) {
  detail::connect_device_engine(group, where);
}

HFCOMM_INLINE void synchronize(stream_ref stream, const process_group& group, std::source_location where) {
  engines::operation call{.name = "synchronize", .where = where};
  call.timeout = group.timeout();
  auto& state = detail::group_access::state(group);
  // An engine that is made here is used only to query the stream; it was never connected.
  const auto engine =
      state.has_devices.load(std::memory_order_acquire) ? state.devices : detail::make_device_engine(group, call);
  (void)engine->wait_for(call, engine->sequence(), {nullptr, stream}, {});
}

}  // namespace hfcomm
