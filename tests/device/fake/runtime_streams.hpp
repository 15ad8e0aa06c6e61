// SPDX-License-Identifier: MIT
#pragma once

#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include <fake/runtime.hpp>

/// The CUDA runtime's functions on streams and events.
namespace fake_cuda::detail {

/// Calls `body(world, stream)` with the world locked.
template <class Body>
cudaError_t stream_call(const char* name, cudaStream_t handle, Body body) {
  return runtime_call(name, [&](world& all) {
    const std::scoped_lock lock(all.mutex);
    auto* stream = resolve(all, handle, facts(all).device);
    return stream == nullptr ? cudaErrorInvalidResourceHandle : body(all, *stream);
  });
}

/// Copies memory. A copy that is impossible by now is refused at once. Memory that is freed before the copy runs is an
/// illegal access.
inline cudaError_t memcpy_async(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                                cudaStream_t handle) {
  return stream_call("cudaMemcpyAsync", handle, [&](world& all, CUstream_st& stream) {
    const auto target = all.memory.find(to);
    const auto source = all.memory.find(from);
    const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    if (kind < cudaMemcpyHostToHost || kind > cudaMemcpyDefault ||
        (bytes != 0 && (to == nullptr || from == nullptr || (to_device && !target) || (from_device && !source)))) {
      return cudaErrorInvalidValue;
    }
    const auto whole = [&all, bytes](const std::optional<allocation>& range, const void* pointer) {
      return !range || all.memory.usable(pointer, bytes, range->device);
    };
    if (!whole(target, to) || !whole(source, from)) {
      return cudaErrorInvalidValue;
    }
    all.copies.push_back({kind, bytes, stream.device});
    return put(all, stream, always([&all, whole, target, source, to, from, bytes, kind] {
                 std::this_thread::sleep_for(all.copy_times[kind].load());
                 if (!whole(target, to) || !whole(source, from)) {
                   ++all.illegal_accesses;
                 } else if (bytes != 0) {
                   std::memmove(to, from, bytes);
                 }
               }));
  });
}

inline cudaError_t memset_async(void* to, int value, std::size_t bytes, cudaStream_t handle) {
  return stream_call("cudaMemsetAsync", handle, [&](world& all, CUstream_st& stream) {
    const auto target = all.memory.find(to);
    if (bytes != 0 && (!target || !all.memory.usable(to, bytes, target->device))) {
      return cudaErrorInvalidValue;
    }
    return put(all, stream, always([&all, target, to, value, bytes] {
                 if (bytes == 0) {
                   return;
                 }
                 if (!all.memory.usable(to, bytes, target->device)) {
                   ++all.illegal_accesses;
                   return;
                 }
                 std::memset(to, value, bytes);
               }));
  });
}

inline cudaError_t stream_create_with_priority(cudaStream_t* result, unsigned flags, int /*priority*/) {
  return runtime_call("cudaStreamCreateWithPriority", [&](world& all) {
    if (flags != cudaStreamDefault && flags != cudaStreamNonBlocking) {
      return cudaErrorInvalidValue;
    }
    const std::scoped_lock lock(all.mutex);
    auto stream = std::make_unique<CUstream_st>();
    stream->device = facts(all).device;
    stream->waits_for_default = flags == cudaStreamDefault;
    stream->thread = new_thread(all);
    *result = stream.get();
    all.streams[*result] = std::move(stream);
    return cudaSuccess;
  });
}

inline cudaError_t stream_destroy(cudaStream_t handle) {
  return stream_call("cudaStreamDestroy", handle, [&](world& all, CUstream_st& stream) {
    if (stream.is_default) {
      return cudaErrorInvalidResourceHandle;
    }
    if (stream.recording.graph != nullptr) {
      stream.recording.graph->invalidated = true;
      stream.recording.graph->members.erase(&stream);
    }
    stream.thread->finish();
    all.streams.erase(&stream);
    return cudaSuccess;
  });
}

inline cudaError_t stream_query(cudaStream_t handle) {
  return stream_call("cudaStreamQuery", handle, [](world& all, CUstream_st& stream) {
    if (stream.recording.graph != nullptr) {
      stream.recording.graph->invalidated = true;
      return cudaErrorStreamCaptureUnsupported;
    }
    if (meets_a_capture(all, stream)) {
      return cudaErrorStreamCaptureImplicit;
    }
    auto moments = stream.is_default ? implicit_waits(all, stream) : std::vector<moment>();
    moments.push_back(stream.thread->last());
    for (const auto& one : moments) {
      if (!one.reached()) {
        return cudaErrorNotReady;
      }
    }
    return cudaSuccess;
  });
}

inline cudaError_t stream_synchronize(cudaStream_t handle) {
  std::vector<moment> moments;
  const auto status = stream_call("cudaStreamSynchronize", handle, [&](world& all, CUstream_st& stream) {
    if (stream.recording.graph != nullptr) {
      stream.recording.graph->invalidated = true;
      return cudaErrorStreamCaptureUnsupported;
    }
    if (meets_a_capture(all, stream)) {
      return cudaErrorStreamCaptureImplicit;
    }
    moments = stream.is_default ? implicit_waits(all, stream) : std::vector<moment>();
    moments.push_back(stream.thread->last());
    return cudaSuccess;
  });
  for (const auto& one : moments) {
    one.wait();
  }
  return status;
}

inline cudaError_t device_synchronize() {
  std::vector<moment> moments;
  const auto status = runtime_call("cudaDeviceSynchronize", [&](world& all) {
    const std::scoped_lock lock(all.mutex);
    for (const auto& [handle, stream] : all.streams) {
      if (stream->device == facts(all).device) {
        moments.push_back(stream->thread->last());
      }
    }
    if (const auto found = all.default_streams.find(facts(all).device); found != all.default_streams.end()) {
      moments.push_back(found->second->thread->last());
    }
    return cudaSuccess;
  });
  for (const auto& one : moments) {
    one.wait();
  }
  return status;
}

inline cudaError_t stream_wait_event(cudaStream_t handle, cudaEvent_t event, unsigned /*flags*/) {
  return stream_call("cudaStreamWaitEvent", handle, [&](world& all, CUstream_st& stream) {
    const auto found = all.events.find(event);
    return found == all.events.end() ? cudaErrorInvalidResourceHandle : wait_for(all, stream, *found->second);
  });
}

inline cudaError_t stream_is_capturing(cudaStream_t handle, cudaStreamCaptureStatus* status) {
  return stream_call("cudaStreamIsCapturing", handle, [&](world& all, CUstream_st& stream) {
    if (meets_a_capture(all, stream, false)) {
      return cudaErrorStreamCaptureImplicit;
    }
    const auto* graph = stream.recording.graph.get();
    *status = graph == nullptr     ? cudaStreamCaptureStatusNone
              : graph->invalidated ? cudaStreamCaptureStatusInvalidated
                                   : cudaStreamCaptureStatusActive;
    return cudaSuccess;
  });
}

inline cudaError_t event_create_with_flags(cudaEvent_t* result, unsigned flags) {
  return runtime_call("cudaEventCreateWithFlags", [&](world& all) {
    constexpr unsigned known = cudaEventBlockingSync | cudaEventDisableTiming | cudaEventInterprocess;
    if ((flags & ~known) != 0) {
      return cudaErrorInvalidValue;
    }
    const std::scoped_lock lock(all.mutex);
    auto event = std::make_unique<CUevent_st>();
    event->device = facts(all).device;
    *result = event.get();
    all.events[*result] = std::move(event);
    return cudaSuccess;
  });
}

inline cudaError_t event_destroy(cudaEvent_t event) {
  return runtime_call("cudaEventDestroy", [&](world& all) {
    const std::scoped_lock lock(all.mutex);
    return all.events.erase(event) == 0 ? cudaErrorInvalidResourceHandle : cudaSuccess;
  });
}

inline cudaError_t event_record(cudaEvent_t event, cudaStream_t handle) {
  return stream_call("cudaEventRecord", handle, [&](world& all, CUstream_st& stream) {
    const auto found = all.events.find(event);
    if (found == all.events.end() || found->second->device != stream.device) {
      return cudaErrorInvalidResourceHandle;
    }
    return record(all, *found->second, stream);
  });
}

/// Sets `when` to the moment of an event. A moment without a timeline has been reached.
inline cudaError_t moment_of(world& all, cudaEvent_t event, moment& when) {
  const std::scoped_lock lock(all.mutex);
  const auto found = all.events.find(event);
  if (found == all.events.end()) {
    return cudaErrorInvalidResourceHandle;
  }
  if (const auto& graph = found->second->recorded_in.graph; graph != nullptr) {
    graph->invalidated = true;
    return cudaErrorCapturedEvent;
  }
  when = found->second->when;
  return cudaSuccess;
}

inline cudaError_t event_query(cudaEvent_t event) {
  return runtime_call("cudaEventQuery", [&](world& all) {
    moment when;
    const auto status = moment_of(all, event, when);
    return status != cudaSuccess ? status : when.reached() ? cudaSuccess : cudaErrorNotReady;
  });
}

inline cudaError_t event_elapsed_time(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  return runtime_call("cudaEventElapsedTime", [&](world& all) {
    const auto time_of = [&](cudaEvent_t event, std::chrono::steady_clock::time_point& time) {
      moment when;
      if (const auto status = moment_of(all, event, when); status != cudaSuccess || when.line == nullptr) {
        return cudaErrorInvalidResourceHandle;
      }
      if (!when.reached()) {
        return cudaErrorNotReady;
      }
      const std::scoped_lock lock(all.mutex);
      time = *all.events.find(event)->second->time;
      return cudaSuccess;
    };
    std::chrono::steady_clock::time_point from;
    std::chrono::steady_clock::time_point to;
    auto status = time_of(start, from);
    status = status == cudaSuccess ? time_of(end, to) : status;
    *milliseconds = std::chrono::duration<float, std::milli>(to - from).count();
    return status;
  });
}

inline cudaError_t event_synchronize(cudaEvent_t event) {
  return runtime_call("cudaEventSynchronize", [&](world& all) {
    moment when;
    const auto status = moment_of(all, event, when);
    when.wait();
    return status;
  });
}

}  // namespace fake_cuda::detail
