// SPDX-License-Identifier: MIT
#pragma once

#include <hfcomm/call/async.hpp>
#include <hfcomm/collectives/barrier.hpp>
#include <hfcomm/core/config.hpp>
#include <hfcomm/group/detail/running_call.hpp>

namespace hfcomm {

HFCOMM_INLINE void barrier(const process_group& group, std::source_location where) {
  engines::operation call{.name = "barrier", .where = where};
  detail::running_call running(group, call);
  running.exchange_nothing();
}

namespace detail {

/// The host's `barrier` as a function object, without the overload for devices.
inline constexpr auto call_barrier = [](const process_group& group, std::source_location where) {
  hfcomm::barrier(group, where);
};

}  // namespace detail

HFCOMM_INLINE work<void> barrier_async(const process_group& group, std::source_location where) {
  return detail::start("barrier", detail::call_barrier, group, where);
}

}  // namespace hfcomm
