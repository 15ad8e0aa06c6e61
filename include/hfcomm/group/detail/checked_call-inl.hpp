// SPDX-License-Identifier: MIT
#pragma once

#include <exception>

#include <hfcomm/core/config.hpp>
#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/engine/call_text.hpp>
#include <hfcomm/group/detail/checked_call.hpp>
#include <hfcomm/group/detail/group_state.hpp>

namespace hfcomm::detail {

HFCOMM_INLINE error_context checked_call::context() const {
  return {group_.rank(), group_.size(), engines::call_name(call_), number_, call_.where};
}

HFCOMM_INLINE void checked_call::refuse(const std::string& text) {
  const auto where = context();
  announce_failure(text);
  throw_error<usage_error>(where, {text});
}

HFCOMM_INLINE void checked_call::fail_again(std::string_view what) {
  const auto where = context();
  announce_failure(concat({what, current_exception_text()}));
  rethrow_with(where);
}

HFCOMM_INLINE void checked_call::require_root() {
  if (call_.root < 0 || call_.root >= group_.size()) [[unlikely]] {
    refuse(engines::no_such_rank("root", call_.root, group_.size()));
  }
}

HFCOMM_INLINE void checked_call::throw_deferred() {
  const std::exception_ptr problem = group_access::state(group_).take_deferred();
  if (!problem) {
    return;
  }
  try {
    std::rethrow_exception(problem);
  } catch (...) {
    announce_failure(concat({"an earlier operation of this rank failed: ", current_exception_text()}));
    throw;
  }
}

}  // namespace hfcomm::detail
