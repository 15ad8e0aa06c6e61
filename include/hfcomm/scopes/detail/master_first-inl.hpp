// SPDX-License-Identifier: MIT
#pragma once

#include <exception>

#include <hfcomm/core/config.hpp>
#include <hfcomm/core/error.hpp>
#include <hfcomm/group/detail/deferred_errors.hpp>
#include <hfcomm/group/detail/group_state.hpp>
#include <hfcomm/group/detail/running_call.hpp>
#include <hfcomm/scopes/master_first.hpp>

namespace hfcomm::detail {

HFCOMM_INLINE master_section::master_section(operation_name name, const process_group& group,
                                             std::chrono::nanoseconds timeout, std::source_location where)
    : group_(group.with_timeout(timeout)),
      call_{.name = name, .where = where},
      exceptions_(std::uncaught_exceptions()) {
  running_call running(group_, call_);
  if (group_.rank() == 0) {
    running.engine().prepare(call_);
    ++group_access::state(group_).master_sections;
  } else {
    running.engine().wait_for(call_, 0);
  }
}

HFCOMM_INLINE master_section::~master_section() {
  const std::string no_text;
  close(std::uncaught_exceptions() > exceptions_ ? &no_text : nullptr);
}

HFCOMM_INLINE void master_section::close(const std::string* failure) noexcept {
  if (group_.rank() != 0 || closed_) {
    return;
  }
  closed_ = true;
  auto& state = group_access::state(group_);
  --state.master_sections;
  try {
    running_call running(group_, call_);
    running.engine().announce(call_, failure);
  } catch (...) {
    defer(group_, std::current_exception());
  }
}

HFCOMM_INLINE void master_section::close_for_exception() noexcept {
  const std::string text = current_exception_text();
  close(&text);
}

}  // namespace hfcomm::detail
