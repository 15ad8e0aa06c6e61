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

/// Makes the work of one launch. It is called on the thread that puts the work on a stream, once for each launch of a
/// graph.
using work_maker = std::function<std::function<void()>()>;

/// A graph, during its capture and afterwards. Its nodes are run one after the other.
struct capture {
  std::vector<work_maker> nodes{};
  CUstream_st* origin = nullptr;
  std::set<CUstream_st*> members{};
  bool invalidated = false;
  bool ended = false;
};

/// The position of a stream or an event in a capture: the nodes that come before it.
struct capture_place {
  std::shared_ptr<capture> graph{};
  std::set<std::size_t> seen{};
};

}  // namespace fake_cuda

// The types behind the handles of CUDA's headers.

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
  std::shared_ptr<std::chrono::steady_clock::time_point> time{};  // when `when` was reached; written then
};
