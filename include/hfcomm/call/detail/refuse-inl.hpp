// SPDX-License-Identifier: MIT
#pragma once

#include <exception>

#include <hfcomm/call/refuse.hpp>
#include <hfcomm/core/config.hpp>
#include <hfcomm/group/detail/running_call.hpp>

namespace hfcomm::detail {

HFCOMM_INLINE void refuse(const process_group& group, operation call, const std::string& why) noexcept {
  const entry_mark mark(call);
  try {
    running_call(group, call).reject(why);
  } catch (...) {
    if (mark.entered()) {
      defer(group, std::current_exception());
    }
  }
}

}  // namespace hfcomm::detail
