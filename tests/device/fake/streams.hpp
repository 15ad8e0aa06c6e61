// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include <fake/world.hpp>

/// Work on streams. All functions are called with the world's mutex held.
namespace fake_cuda::detail {

inline std::shared_ptr<work_thread> new_thread(world& all) {
  std::erase_if(all.threads, [](const auto& one) { return one->has_ended(); });
  auto thread = std::make_shared<work_thread>([&all](const std::function<void()>& work) { all.guarded(work); });
  all.threads.push_back(thread);
  return thread;
}

inline CUstream_st* default_stream(world& all, int device) {
  auto& found = all.default_streams[device];
  if (found == nullptr) {
    found = std::make_unique<CUstream_st>();
    found->device = device;
    found->is_default = true;
    found->thread = new_thread(all);
  }
  return found.get();
}

/// Returns the stream of a handle on that device; null for an invalid handle.
inline CUstream_st* resolve(world& all, cudaStream_t handle, int device) {
  if (handle == nullptr || handle == cudaStreamLegacy) {
    return default_stream(all, device);
  }
  const auto found = all.streams.find(handle);
  return found == all.streams.end() ? nullptr : found->second.get();
}

/// Returns the work that CUDA makes new work wait for, between the default stream and the streams that synchronize with
/// it.
inline std::vector<moment> implicit_waits(const world& all, const CUstream_st& stream) {
  std::vector<moment> result;
  if (stream.is_default) {
    for (const auto& [handle, other] : all.streams) {
      if (other->device == stream.device && other->waits_for_default && other->recording.graph == nullptr) {
        result.push_back(other->thread->last());
      }
    }
  } else if (stream.waits_for_default) {
    if (const auto found = all.default_streams.find(stream.device); found != all.default_streams.end()) {
      result.push_back(found->second->thread->last());
    }
  }
  return result;
}

/// Returns whether work on the default stream would have to wait for a capturing stream. That invalidates the capture,
/// unless `invalidates_it` is false.
inline bool meets_a_capture(const world& all, const CUstream_st& stream, bool invalidates_it = true) {
  if (!stream.is_default) {
    return false;
  }
  for (const auto& [handle, other] : all.streams) {
    if (other->device == stream.device && other->waits_for_default && other->recording.graph != nullptr) {
      other->recording.graph->invalidated = other->recording.graph->invalidated || invalidates_it;
      return true;
    }
  }
  return false;
}

/// Puts work on a stream, or into the graph that is captured there. `done` is set to its end.
inline cudaError_t put(world& all, CUstream_st& stream, const work_maker& make, const std::vector<moment>& after = {},
                       moment* done = nullptr) {
  if (auto& place = stream.recording; place.graph != nullptr) {
    if (place.graph->invalidated) {
      return cudaErrorStreamCaptureInvalidated;
    }
    place.seen.insert(place.graph->nodes.size());
    place.graph->nodes.push_back(make);
    return cudaSuccess;
  }
  if (meets_a_capture(all, stream)) {
    return cudaErrorStreamCaptureImplicit;
  }
  auto waits = implicit_waits(all, stream);
  waits.insert(waits.end(), after.begin(), after.end());
  const moment end = stream.thread->put(make ? make() : nullptr, std::move(waits));
  if (done != nullptr) {
    *done = end;
  }
  return cudaSuccess;
}

/// Returns a maker of work that is the same in each launch.
inline work_maker always(std::function<void()> work) {
  return [work = std::move(work)] { return work; };
}

inline cudaError_t record(world& all, CUevent_st& event, CUstream_st& stream) {
  if (stream.recording.graph != nullptr) {
    if (stream.recording.graph->invalidated) {
      return cudaErrorStreamCaptureInvalidated;
    }
    event.recorded_in = stream.recording;
    event.when = {};
    return cudaSuccess;
  }
  const auto time = std::make_shared<std::chrono::steady_clock::time_point>();
  const auto status = put(all, stream, always([time] { *time = std::chrono::steady_clock::now(); }), {}, &event.when);
  if (status == cudaSuccess) {
    event.recorded_in = {};
    event.time = time;
  }
  return status;
}

inline cudaError_t wait_for(world& all, CUstream_st& stream, const CUevent_st& event) {
  const auto& theirs = event.recorded_in;
  auto& own = stream.recording;
  if (theirs.graph != nullptr) {
    if (theirs.graph->ended) {
      return cudaErrorCapturedEvent;
    }
    if (theirs.graph->invalidated) {
      return cudaErrorStreamCaptureInvalidated;
    }
    if (own.graph != nullptr && own.graph != theirs.graph) {
      own.graph->invalidated = true;
      theirs.graph->invalidated = true;
      return cudaErrorStreamCaptureMerge;
    }
    if (stream.is_default) {
      return cudaErrorStreamCaptureImplicit;
    }
    own.graph = theirs.graph;
    own.graph->members.insert(&stream);
    own.seen.insert(theirs.seen.begin(), theirs.seen.end());
    return cudaSuccess;
  }
  if (event.when.line == nullptr) {
    return cudaSuccess;  // never recorded, so nothing to wait for
  }
  if (own.graph != nullptr) {
    own.graph->invalidated = true;
    return cudaErrorStreamCaptureIsolation;
  }
  return put(all, stream, nullptr, {event.when});
}

}  // namespace fake_cuda::detail
