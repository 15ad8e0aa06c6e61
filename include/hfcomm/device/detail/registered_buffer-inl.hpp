// SPDX-License-Identifier: MIT
#pragma once

#include <limits>
#include <string>

#include <hfcomm/core/config.hpp>
#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/device/detail/device_call.hpp>
#include <hfcomm/device/registered_buffer.hpp>
#include <hfcomm/group/detail/group_state.hpp>

namespace hfcomm::detail {

HFCOMM_INLINE std::shared_ptr<std::byte> allocate_registered(operation call, std::size_t count, std::size_t width,
                                                             const process_group& group) {
  connect_device_once(group, call.where);
  running_call running(group, call);
  if (count > static_cast<std::size_t>(std::numeric_limits<std::ptrdiff_t>::max()) / width) {
    running.refuse(concat({"no memory has room for ", count, " elements"}));
  }
  running.exchange_nothing();
  return group_access::state(group).devices->allocate_registered(call, count * width);
}

}  // namespace hfcomm::detail
