// SPDX-License-Identifier: MIT
#pragma once

#include <doctest/doctest.h>
#include <hfcomm/cuda/nccl_api.hpp>
#include <hfcomm/cuda/runtime_api.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <source_location>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <hfcomm/comm.hpp>
#include <hfcomm/nccl.hpp>

#include "../multi_rank/ranks.hpp"
#include "kernels.hpp"

/// Helpers of the tests on a GPU.
namespace gpu {

using multi_rank::as_index;
using multi_rank::each_of;
using multi_rank::error_of;

/// Longer than any operation here; it only ends a failed test.
inline constexpr std::chrono::seconds held_at_most{30};

class stream {
 public:
  stream() {
    const auto& api = hfcomm::cuda::runtime();
    api.check(api.cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, 0), "cudaStreamCreateWithPriority",
              std::source_location::current());
  }
  stream(const stream&) = delete;
  stream& operator=(const stream&) = delete;
  ~stream() { (void)hfcomm::cuda::runtime().cudaStreamDestroy(stream_); }

  [[nodiscard]] cudaStream_t get() const { return stream_; }
  /// Returns whether work on the stream is still in progress.
  [[nodiscard]] bool busy() const {
    const auto& api = hfcomm::cuda::runtime();
    const cudaError_t status = api.cudaStreamQuery(stream_);
    if (status == cudaErrorNotReady) {
      (void)api.cudaGetLastError();
      return true;
    }
    api.check(status, "cudaStreamQuery", std::source_location::current());
    return false;
  }

 private:
  cudaStream_t stream_ = nullptr;
};

/// Waits for the stream with CUDA alone.
inline void drain(hfcomm::stream_ref stream) {
  const auto& api = hfcomm::cuda::runtime();
  api.check(api.cudaStreamSynchronize(stream.get()), "cudaStreamSynchronize", std::source_location::current());
}

/// A kernel that holds a stream until it is opened. A call that returns meanwhile has not waited for the stream.
class gate {
 public:
  explicit gate(hfcomm::stream_ref stream) : opened_(1), stream_(stream) {
    gpu::hold(stream.get(), opened_.data(), static_cast<std::uint64_t>(std::chrono::nanoseconds(held_at_most).count()));
  }
  gate(const gate&) = delete;
  gate& operator=(const gate&) = delete;
  ~gate() {
    open();
    (void)hfcomm::cuda::runtime().cudaStreamSynchronize(stream_.get());  // the kernel reads memory that is freed here
  }
  void open() { std::atomic_ref(*opened_.data()).store(1); }

 private:
  hfcomm::pinned_buffer<int> opened_;
  hfcomm::stream_ref stream_;
};

template <class T>
hfcomm::device_buffer<T> on_device(const std::vector<T>& values, hfcomm::stream_ref stream) {
  hfcomm::device_buffer<T> made(values.size());
  copy(values, made, stream);
  drain(stream);  // `values` may end
  return made;
}

/// Overwrites device memory.
template <class T>
void put(const std::vector<T>& values, hfcomm::device_buffer<T>& data, hfcomm::stream_ref stream) {
  copy(values, data, stream);
  drain(stream);
}

/// Returns the contents of the memory after all work on the stream.
template <hfcomm::device_range R>
auto on_host(const R& range, hfcomm::stream_ref stream) {
  std::vector<hfcomm::device_value_t<R>> values(range.size());
  copy(range, values, stream);
  drain(stream);
  return values;
}

inline bool says(const std::exception& problem, std::string_view text) {
  return std::string_view(problem.what()).find(text) != std::string_view::npos;
}

/// Prints the line that marks a case as skipped.
inline void say_skipped(std::string_view name, std::string_view why) {
  std::string line = "[hfcomm] skipped: " + std::string(name) + ": " + std::string(why);
  for (char& one : line) {
    one = one == '\n' ? ' ' : one;
  }
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

}  // namespace gpu
