// SPDX-License-Identifier: MIT
#pragma once

#include <source_location>

#include <hfcomm/core/stream_ref.hpp>
#include <hfcomm/group/session.hpp>

namespace hfcomm {

/// Gets a group ready for operations on the current device, which the first one does otherwise: all ranks make an NCCL
/// communicator together, and try it by an all-reduce of one element. Collective. Each rank makes its own device
/// current first, cudaSetDevice(local_rank()).
///
/// Throws on all ranks where it fails on one: engine_error where there is no CUDA or no NCCL, naming what was looked
/// for where, and where NCCL fails or takes longer than the group's deadline; usage_error where two ranks use one GPU;
/// mismatch_error where their versions of NCCL differ; timeout_error and peer_error as every collective.
void connect_device(const process_group& group = world(), std::source_location where = std::source_location::current());

/// Blocks until all that is on the stream by now is done, as cudaStreamSynchronize does; but where an operation of this
/// group waits there for a rank that died, left, or refused its part, this frees the device and throws peer_error; and
/// timeout_error, naming the ranks that have not come, where the group's deadline passes, counted from here.
void synchronize(stream_ref stream, const process_group& group = world(),
                 std::source_location where = std::source_location::current());

}  // namespace hfcomm
