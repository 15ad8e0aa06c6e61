// SPDX-License-Identifier: MIT
#pragma once

#include <exception>
#include <utility>

#include <hfcomm/core/config.hpp>
#include <hfcomm/ddp/detail/ddp_state.hpp>
#include <hfcomm/ddp/detail/join_session.hpp>
#include <hfcomm/ddp/join.hpp>

namespace hfcomm {

HFCOMM_INLINE join_scope::join_scope(distributed_data_parallel& ddp, join_options options, std::source_location where)
    : ddp_(ddp),
      session_(std::make_unique<detail::join_session>(std::move(options))),
      where_(where),
      exceptions_(std::uncaught_exceptions()) {
  ddp_.state_->open_join(*session_, where);
}

HFCOMM_INLINE join_scope::~join_scope() {
  // Only the handler that catches the exception can tell its text; the others wait briefly for that.
  leave(std::uncaught_exceptions() > exceptions_ ? "" : "it left its join scope without calling finish()");
}

HFCOMM_INLINE void join_scope::finish(std::source_location where) {
  auto& ddp = *ddp_.state_;
  if (!is_open()) {
    detail::throw_error<usage_error>(ddp.context(where), {"this join scope is closed already"});
  }
  session_->require_can_finish(ddp.context(where));
  try {
    while (true) {
      const auto agreed = ddp.shadow_pass(where);
      if (agreed.ends_scope()) {
        break;
      }
      if (agreed.averages && session_->options().on_shadow) {
        session_->options().on_shadow();
      }
    }
  } catch (...) {
    leave(detail::current_exception_text());
    throw;
  }
  ddp.finish_join(where);
}

HFCOMM_INLINE void join_scope::leave(std::string_view why) noexcept {
  if (is_open()) {
    ddp_.state_->leave_join(why, where_);
  }
}

HFCOMM_INLINE bool join_scope::is_open() const noexcept { return ddp_.state_->is_joined(*session_); }

}  // namespace hfcomm
