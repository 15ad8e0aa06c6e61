// SPDX-License-Identifier: MIT
#pragma once

#include <hfcomm/core/call_site.hpp>
#include <hfcomm/core/stream_ref.hpp>
#include <hfcomm/device/device_work.hpp>
#include <hfcomm/group/session.hpp>

namespace hfcomm {

/// Makes the following work on the stream wait until the streams of all ranks have reached their barriers. Returns at
/// once: the host does not wait. Throws usage_error where the group is not connected on the current device, and
/// engine_error where NCCL or the CUDA runtime fails.
void barrier(stream_ref stream, const process_group& group = world(), call_site where = call_site::current());

/// The same on a stream of the group's own, which waits for the work already on `stream`.
device_work barrier_async(stream_ref stream, const process_group& group = world(),
                          call_site where = call_site::current());

}  // namespace hfcomm
