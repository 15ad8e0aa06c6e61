// SPDX-License-Identifier: MIT
#pragma once

#include <exception>

#include <hfcomm/call/announce_failure.hpp>
#include <hfcomm/core/config.hpp>
#include <hfcomm/core/error.hpp>
#include <hfcomm/group/detail/deferred_errors.hpp>
#include <hfcomm/scopes/barrier_scope.hpp>

namespace hfcomm {

namespace detail {

HFCOMM_INLINE void announce_barrier_failure(const process_group& group, const std::string& why,
                                            std::source_location where) noexcept {
  announce_failure(group, {.name = "barrier", .where = where}, why);
}

HFCOMM_INLINE void announce_barrier_exception(const process_group& group, std::source_location where) {
  announce_barrier_failure(group, current_exception_text(), where);
}

}  // namespace detail

HFCOMM_INLINE barrier_scope::barrier_scope(const process_group& group, std::source_location where)
    : group_(group), where_(where), exceptions_(std::uncaught_exceptions()) {
  barrier(group_, where_);
}

HFCOMM_INLINE barrier_scope::~barrier_scope() {
  try {
    if (std::uncaught_exceptions() > exceptions_) {
      detail::announce_barrier_failure(group_, {}, where_);
    } else {
      barrier(group_, where_);
    }
  } catch (...) {
    detail::defer(group_, std::current_exception());
  }
}

}  // namespace hfcomm
