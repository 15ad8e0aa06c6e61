// SPDX-License-Identifier: MIT
#pragma once

#include <source_location>

#include <hfcomm/call/device_call.hpp>

namespace hfcomm {

/// Gets a group ready for operations on the current device, which the first one does otherwise: all ranks make an NCCL
/// communicator together, and try it by an all-reduce of one element. Collective. Each rank makes its own device
/// current first, cudaSetDevice(local_rank()).
///
/// Throws on all ranks where it fails on one: engine_error where there is no CUDA or no NCCL, naming what was looked
/// for where, and where NCCL fails or takes longer than the group's deadline; usage_error where two ranks use one GPU;
/// mismatch_error where their versions of NCCL differ; timeout_error and peer_error as every collective.
inline void connect_device(const process_group& group = world(),
                           std::source_location where = std::source_location::current()) {
  detail::connect_device(group, where);
}

/// Blocks until all that is on the stream by now is done, as cudaStreamSynchronize does; but where an operation of this
/// group waits there for a rank that died, left, or refused its part, this frees the device and throws peer_error; and
/// timeout_error, naming the ranks that have not come, where the group's deadline passes, counted from here.
inline void synchronize(stream_ref stream, const process_group& group = world(),
                        std::source_location where = std::source_location::current()) {
  operation call{.name = "synchronize", .where = where};
  call.timeout = group.timeout();
  auto& state = detail::group_access::state(group);
  const auto engine = state.has_devices.load(std::memory_order_acquire)
                          ? state.devices
                          : detail::make_device_engine(group, call);  // for its eyes only: there is nothing to wait for
  (void)engine->await(call, engine->sequence(), {nullptr, stream}, {});
}

}  // namespace hfcomm
