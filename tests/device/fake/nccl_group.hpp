// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <fake/nccl_call.hpp>

namespace fake_cuda::detail {

/// Puts a kernel on its stream. Where its calls named several streams, it waits for all, and all wait for it.
inline ncclResult_t launch_kernel(world& all, const planned_kernel& planned) {
  const std::scoped_lock lock(all.mutex);
  std::vector<CUstream_st*> streams;
  for (auto* stream : planned.streams) {
    if (stream->is_default || all.streams.contains(stream)) {
      streams.push_back(stream);
    }
  }
  if (streams.empty()) {
    return refuse(all, ncclUnhandledCudaError, "the stream was destroyed before the group ended");
  }
  const work_maker make = [&all, what = planned.what]() -> std::function<void()> {
    const auto ticket = what.comm->issue();
    const bool never = all.never_complete.is_shut(what.comm->device);
    return [&all, what, ticket, never] { run_kernel(all, what, ticket, never); };
  };
  auto& first = *streams.front();
  std::vector<moment> before;
  for (std::size_t index = 1; index < streams.size(); ++index) {
    auto& other = *streams[index];
    first.recording.seen.insert(other.recording.seen.begin(), other.recording.seen.end());
    before.push_back(other.thread->last());
  }
  moment end;
  if (put(all, first, make, before, &end) != cudaSuccess) {
    return refuse(all, ncclUnhandledCudaError, "the stream takes no work: its capture was invalidated, for instance");
  }
  for (std::size_t index = 1; index < streams.size(); ++index) {
    if (first.recording.graph != nullptr) {
      streams[index]->recording.seen = first.recording.seen;
    } else {
      (void)put(all, *streams[index], nullptr, {end});
    }
  }
  return ncclSuccess;
}

/// Pairs the messages of a rank to itself in the group. A pair with one buffer needs no copy. Returns false where one
/// lacks its counterpart.
inline bool pair_messages_to_self(kernel& what) {
  const int self = what.comm->rank;
  std::vector<message> sent;
  std::vector<message> received;
  for (const auto& one : what.messages) {
    if (one.peer == self) {
      (one.outgoing ? sent : received).push_back(one);
    }
  }
  if (sent.size() != received.size()) {
    return false;
  }
  std::erase_if(what.messages, [&](const message& one) { return one.peer == self; });
  for (std::size_t index = 0; index < sent.size(); ++index) {
    if (sent[index].buffer != received[index].buffer) {
      what.messages.push_back(received[index]);
      what.messages.push_back(sent[index]);
    }
  }
  return true;
}

/// Launches one communicator's part of a group. A non-blocking communicator launches it at the first poll.
inline ncclResult_t launch_part(world& all, planned_kernel planned) {
  const auto comm = planned.what.comm;
  auto result = ncclSuccess;
  if (!pair_messages_to_self(planned.what)) {
    result = refuse(all, ncclInvalidUsage, "Trying to send to self without a matching recv, or the reverse");
  }
  if (comm->blocking) {
    if (result == ncclSuccess) {
      all.hanging_calls.wait_while_shut(comm->device, [&] { return comm->aborted.load(); });
      if (comm->aborted.load()) {
        return refuse(all, ncclInternalError, "the communicator was aborted while it connected ranks");
      }
      result = launch_kernel(all, planned);
    }
    return result;
  }
  auto job = std::make_shared<pending_job>();
  job->done = true;
  job->result = result;
  job->conclude = [&all, planned = std::move(planned)] { return launch_kernel(all, planned); };
  const std::scoped_lock lock(comm->mutex);
  comm->pending = std::move(job);
  return ncclInProgress;
}

inline void begin_group(world& all) { ++calls_of_group(all).depth; }

inline ncclResult_t end_group(world& all) {
  auto& group = calls_of_group(all);
  if (group.depth == 0) {
    return refuse(all, ncclInvalidUsage, "ncclGroupEnd: not in a group call.");
  }
  if (--group.depth > 0) {
    return ncclSuccess;
  }
  auto ended = std::exchange(group, {});
  group.world = all.number;
  auto result = ended.error;
  for (const auto& [comm, job] : ended.jobs) {
    const auto status = wait_for_job(comm, job);
    result = result == ncclSuccess ? status : result;
  }
  if (result != ncclSuccess) {
    return result;
  }
  for (auto& planned : ended.kernels) {
    const auto status = launch_part(all, std::move(planned));
    result = result == ncclSuccess || result == ncclInProgress ? (status == ncclSuccess ? result : status) : result;
  }
  return result;
}

/// Returns the kernel of this thread's group for a call on this communicator and stream. Returns null, and sets
/// `result`, for an invalid call.
inline planned_kernel* planned_kernel_for(world& all, const std::shared_ptr<ncclComm>& comm, cudaStream_t handle,
                                          ncclResult_t& result) {
  const std::scoped_lock lock(all.mutex);
  auto* stream = resolve(all, handle, comm->device);
  if (stream == nullptr || stream->device != comm->device) {
    result = refuse(all, ncclUnhandledCudaError, "the stream is none, or one of another device");
    return nullptr;
  }
  auto& kernels = calls_of_group(all).kernels;
  for (const auto& other : kernels) {
    if (other.what.comm->blocking != comm->blocking) {
      result =
          refuse(all, ncclInvalidArgument, "Blocking and nonblocking communicators are not allowed in the same group.");
      return nullptr;
    }
  }
  auto found = std::find_if(kernels.begin(), kernels.end(),
                            [&](const planned_kernel& planned) { return planned.what.comm == comm; });
  if (found == kernels.end()) {
    found = kernels.insert(found, planned_kernel{{comm, {}, {}}, {}, stream->recording.graph});
  }
  if (found->graph != stream->recording.graph) {
    result = refuse(all, ncclInvalidUsage,
                    "Streams given to a communicator within a NCCL group must either be all uncaptured or all captured "
                    "by the same graph.");
    return nullptr;
  }
  if (std::find(found->streams.begin(), found->streams.end(), stream) == found->streams.end()) {
    found->streams.push_back(stream);
  }
  return &*found;
}

inline ncclResult_t group_start() {
  return nccl_call("ncclGroupStart", any_device, [](world& all) {
    begin_group(all);
    return ncclSuccess;
  });
}

inline ncclResult_t group_end() {
  return nccl_call("ncclGroupEnd", any_device, [](world& all) { return end_group(all); });
}

}  // namespace fake_cuda::detail
