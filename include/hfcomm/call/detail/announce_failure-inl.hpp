// SPDX-License-Identifier: MIT
#pragma once

#include <exception>

#include <hfcomm/call/announce_failure.hpp>
#include <hfcomm/core/config.hpp>
#include <hfcomm/group/detail/running_call.hpp>

namespace hfcomm::detail {

HFCOMM_INLINE void announce_failure(const process_group& group, operation call, const std::string& why) noexcept {
  bool has_entered = false;
  try {
    running_call(group, call, &has_entered).announce_failure(why);
  } catch (...) {
    if (has_entered) {
      defer(group, std::current_exception());
    }
  }
}

}  // namespace hfcomm::detail
