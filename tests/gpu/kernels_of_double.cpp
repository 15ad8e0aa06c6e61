// SPDX-License-Identifier: MIT
// The tests' kernels over the test double, whose device memory is the host's and whose kernels are functions.
#include "kernels.hpp"

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>

#include <hfcomm/comm.hpp>
#include <hfcomm/nccl.hpp>

#include <fake/fake_cuda.hpp>

namespace gpu {

std::shared_ptr<void> open() {
  auto all = std::make_shared<fake_cuda::install>();
  fake_cuda::set_ranks(fake_cuda::ranks_are::processes);
  // The double knows no machines: each rank's pretended machine has one GPU, which is a device of its own.
  const char* const machine = std::getenv("NCCL_HOSTID");
  const int device = machine != nullptr ? std::atoi(std::strrchr(machine, '-') + 1) : 0;
  if (hfcomm::cuda::runtime().cudaSetDevice(device) != cudaSuccess) {
    throw std::logic_error("the double has no device " + std::to_string(device));
  }
  return all;
}

std::size_t free_memory() { return std::size_t{1} << 30; }
bool may_refuse_ranks() { return false; }
bool adds_bytes_of_floats() { return true; }

void hold(cudaStream_t stream, int* opened, std::uint64_t limit) {
  fake_cuda::launch(stream, [opened, limit] {
    const auto end = std::chrono::steady_clock::now() + std::chrono::nanoseconds(limit);
    while ((opened == nullptr || std::atomic_ref(*opened).load() == 0) && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
}

void fill(cudaStream_t stream, void* memory, std::size_t bytes, std::uint64_t seed, std::uint64_t first) {
  fake_cuda::launch(stream, [=] {
    for (std::size_t at = 0; at < bytes; ++at) {
      static_cast<unsigned char*>(memory)[at] = pattern(first + at, seed);
    }
  });
}

std::uint64_t mismatches(cudaStream_t stream, const void* memory, std::size_t bytes, std::uint64_t seed,
                         std::uint64_t first) {
  std::uint64_t found = 0;
  fake_cuda::launch(stream, [=, &found] {
    for (std::size_t at = 0; at < bytes; ++at) {
      found += static_cast<const unsigned char*>(memory)[at] != pattern(first + at, seed) ? 1 : 0;
    }
  });
  if (hfcomm::cuda::runtime().cudaStreamSynchronize(stream) != cudaSuccess) {
    throw std::runtime_error("cudaStreamSynchronize");
  }
  return found;
}

void multiply(cudaStream_t stream, float* numbers, std::size_t count, float factor) {
  fake_cuda::launch(stream, [=] {
    for (std::size_t at = 0; at < count; ++at) {
      numbers[at] *= factor;
    }
  });
}

graph::graph(cudaStream_t stream, const std::function<void()>& body) {
  fake_cuda::begin_capture(stream);
  body();
  made_ = std::make_shared<fake_cuda::graph>(fake_cuda::end_capture(stream));
}

void graph::launch(cudaStream_t stream) const { static_cast<const fake_cuda::graph*>(made_.get())->launch(stream); }

}  // namespace gpu
