// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <set>
#include <vector>

#include <fake/timeline.hpp>
#include <fake/work_thread.hpp>

#include <cuda_runtime_api.h>

namespace fake_cuda {

/// Work that may be put on a stream more than once: called on the thread that puts it there, it gives what is to be
/// done this time.
using work_maker = std::function<std::function<void()>()>;

/// A graph while it is captured, and afterwards. Its nodes are replayed one after the other.
struct capture {
  std::vector<work_maker> nodes{};
  CUstream_st* origin = nullptr;
  std::set<CUstream_st*> members{};
  bool invalidated = false;
  bool ended = false;
};

/// Where a stream or an event stands in a capture: which nodes come before.
struct capture_place {
  std::shared_ptr<capture> graph{};
  std::set<std::size_t> seen{};
};

}  // namespace fake_cuda

// The types behind the real headers' handles.

struct CUstream_st {
  int device = 0;
  bool is_default = false;
  bool waits_for_default = false;
  std::shared_ptr<fake_cuda::work_thread> thread{};
  fake_cuda::capture_place recording{};
};

struct CUevent_st {
  int device = 0;
  fake_cuda::moment when{};
  fake_cuda::capture_place recorded_in{};
  std::shared_ptr<std::chrono::steady_clock::time_point> time{};  // of `when`, written there
};
