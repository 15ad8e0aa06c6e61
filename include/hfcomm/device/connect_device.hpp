// SPDX-License-Identifier: MIT
#pragma once

#include <hfcomm/core/call_site.hpp>
#include <hfcomm/core/stream_ref.hpp>
#include <hfcomm/group/session.hpp>

namespace hfcomm {

/// Connects a group for operations on the current device. Otherwise the group's first device operation does. All ranks
/// make an NCCL communicator together, and test it by an all-reduce of one element. Collective. Each rank makes its own
/// device current first: cudaSetDevice(local_rank()).
///
/// Where it fails on one rank, it throws on all:
///   engine_error    where there is no CUDA or no NCCL, with the places that were searched, and where NCCL fails or
///                   takes longer than the group's deadline,
///   usage_error     where two ranks use one GPU,
///   mismatch_error  where the ranks' versions of NCCL differ,
///   timeout_error and peer_error as every collective.
void connect_device(const process_group& group = world(), call_site where = call_site::current());

/// Waits until the work already on the stream is done, as cudaStreamSynchronize does.
///
/// Throws peer_error where an operation of this group waits there for a rank that died, left, or refused its part.
/// Throws timeout_error, which names the ranks that have not come, where the group's deadline passes, counted from the
/// call. Both end the operations on the device and break the group.
void synchronize(stream_ref stream, const process_group& group = world(), call_site where = call_site::current());

}  // namespace hfcomm
