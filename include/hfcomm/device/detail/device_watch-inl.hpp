// SPDX-License-Identifier: MIT
#pragma once

#include <hfcomm/core/config.hpp>
#include <hfcomm/device/detail/device_watcher.hpp>
#include <hfcomm/device/device_watch.hpp>

namespace hfcomm {

HFCOMM_INLINE device_watch::device_watch(const process_group& group, std::source_location where)
    : device_watch(group.timeout(), group, where) {}

HFCOMM_INLINE device_watch::device_watch(std::chrono::nanoseconds timeout, const process_group& group,
                                         std::source_location where)
    : watcher_(std::make_unique<detail::device_watcher>(timeout, group, where)) {}

HFCOMM_INLINE device_watch::~device_watch() = default;

}  // namespace hfcomm
