// SPDX-License-Identifier: MIT
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <functional>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include <fake/fake_cuda.hpp>

#include <hfcomm/core/function_ref.hpp>

/// Helpers of the tests of the fake: they call it as CUDA and NCCL, through hfcomm's tables.
namespace fake_ranks {

using hfcomm::cuda::nccl;
using hfcomm::cuda::runtime;

/// Runs `body(rank)` on a thread for each rank, whose device is the rank's number; rethrows what one throws.
inline void on_ranks(int ranks, hfcomm::function_ref<void(int)> body) {
  std::mutex mutex;
  std::exception_ptr problem;
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < ranks; ++rank) {
      threads.emplace_back([&, rank] {
        try {
          REQUIRE(runtime().cudaSetDevice(rank) == cudaSuccess);
          body(rank);
        } catch (...) {
          const std::scoped_lock lock(mutex);
          problem = problem ? problem : std::current_exception();
        }
      });
    }
  }
  if (problem) {
    std::rethrow_exception(problem);
  }
}

template <class Condition>
void wait_until(Condition condition) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) {
      throw std::runtime_error("what the test waits for does not happen");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

inline ncclUniqueId new_id() {
  ncclUniqueId id{};
  REQUIRE(nccl().ncclGetUniqueId(&id) == ncclSuccess);
  return id;
}

inline ncclConfig_t config(bool blocking) {
  ncclConfig_t result = NCCL_CONFIG_INITIALIZER;
  result.blocking = blocking ? 1 : 0;
  return result;
}

inline ncclResult_t state_of(ncclComm_t comm) {
  ncclResult_t state = ncclInternalError;
  REQUIRE(nccl().ncclCommGetAsyncError(comm, &state) == ncclSuccess);
  return state;
}

/// Polls until a communicator is no longer busy.
inline ncclResult_t settle(ncclComm_t comm) {
  ncclResult_t state = ncclInProgress;
  wait_until([&] { return (state = state_of(comm)) != ncclInProgress; });
  return state;
}

inline ncclComm_t join(const ncclUniqueId& id, int rank, int ranks, bool blocking = true) {
  ncclComm_t comm = nullptr;
  auto wish = config(blocking);
  const auto begun = nccl().ncclCommInitRankConfig(&comm, ranks, id, rank, &wish);
  REQUIRE(begun == (blocking ? ncclSuccess : ncclInProgress));
  REQUIRE(settle(comm) == ncclSuccess);
  return comm;
}

class stream {
 public:
  explicit stream(unsigned flags = cudaStreamNonBlocking) {
    REQUIRE(runtime().cudaStreamCreateWithPriority(&stream_, flags, 0) == cudaSuccess);
  }
  stream(const stream&) = delete;
  stream& operator=(const stream&) = delete;
  ~stream() { (void)runtime().cudaStreamDestroy(stream_); }

  operator cudaStream_t() const { return stream_; }
  void wait() const { REQUIRE(runtime().cudaStreamSynchronize(stream_) == cudaSuccess); }

 private:
  cudaStream_t stream_ = nullptr;
};

class event {
 public:
  event() { REQUIRE(runtime().cudaEventCreateWithFlags(&event_, cudaEventDisableTiming) == cudaSuccess); }
  event(const event&) = delete;
  event& operator=(const event&) = delete;
  ~event() { (void)runtime().cudaEventDestroy(event_); }

  operator cudaEvent_t() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

/// Device memory; the host may look into it while nothing is under way.
template <class T>
class device_array {
 public:
  explicit device_array(std::size_t count, T value = T{}) : count_(count) {
    void* memory = nullptr;
    REQUIRE(runtime().cudaMalloc(&memory, count * sizeof(T)) == cudaSuccess);
    data_ = static_cast<T*>(memory);
    std::fill_n(data_, count, value);
  }
  device_array(const device_array&) = delete;
  device_array& operator=(const device_array&) = delete;
  ~device_array() { (void)runtime().cudaFree(data_); }

  [[nodiscard]] T* get() const { return data_; }
  [[nodiscard]] T& operator[](std::size_t index) const { return data_[index]; }
  [[nodiscard]] bool all(T value) const {
    return std::all_of(data_, data_ + count_, [&](const T& one) { return one == value; });
  }

 private:
  T* data_ = nullptr;
  std::size_t count_;
};

/// Something that a kernel waits for.
class latch {
 public:
  void open() {
    const std::scoped_lock lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return open_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
};

}  // namespace fake_ranks
