// SPDX-License-Identifier: MIT
#include "kernels.hpp"

#include <algorithm>
#include <functional>
#include <source_location>

#include <cuda_runtime.h>

#include <hfcomm/core/error.hpp>

namespace gpu {

namespace {

void check(cudaError_t status, const char* what, std::source_location where = std::source_location::current()) {
  if (status != cudaSuccess) {
    (void)cudaGetLastError();
    throw hfcomm::engine_error({-1, 0, what, 0, where}, cudaGetErrorString(status));
  }
}

__device__ std::uint64_t nanoseconds() {
  std::uint64_t now = 0;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

__global__ void hold_kernel(const volatile int* opened, std::uint64_t limit) {
  const std::uint64_t start = nanoseconds();
  while ((opened == nullptr || *opened == 0) && nanoseconds() - start < limit) {
  }
}

__global__ void fill_kernel(unsigned char* memory, std::size_t bytes, std::uint64_t seed, std::uint64_t first) {
  const std::size_t stride = std::size_t{gridDim.x} * blockDim.x;
  for (std::size_t at = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; at < bytes; at += stride) {
    memory[at] = pattern(first + at, seed);
  }
}

__global__ void mismatches_kernel(const unsigned char* memory, std::size_t bytes, std::uint64_t seed,
                                  std::uint64_t first, unsigned long long* found) {
  const std::size_t stride = std::size_t{gridDim.x} * blockDim.x;
  unsigned long long mine = 0;
  for (std::size_t at = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; at < bytes; at += stride) {
    mine += memory[at] != pattern(first + at, seed) ? 1 : 0;
  }
  if (mine != 0) {
    atomicAdd(found, mine);
  }
}

__global__ void multiply_kernel(float* numbers, std::size_t count, float factor) {
  const std::size_t at = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (at < count) {
    numbers[at] *= factor;
  }
}

constexpr unsigned threads = 256;

unsigned blocks_for(std::size_t count, std::size_t most) {
  return static_cast<unsigned>(std::min<std::size_t>((count + threads - 1) / threads, most));
}

/// One number on the device and its copy on the host, allocated once: an allocation may wait for a kernel that a test
/// holds.
struct counter {
  unsigned long long* on_device = nullptr;
  unsigned long long* on_host = nullptr;
  counter() {
    check(cudaMalloc(&on_device, sizeof(*on_device)), "cudaMalloc");
    check(cudaMallocHost(&on_host, sizeof(*on_host)), "cudaMallocHost");
  }
};

counter& the_counter() {
  static counter only;
  return only;
}

}  // namespace

std::shared_ptr<void> open() {
  check(cudaSetDevice(0), "cudaSetDevice");
  check(cudaFree(nullptr), "making a context of the device");
  // CUDA loads a kernel when it is first launched, and may wait for all others then: not for one that a test holds.
  hold_kernel<<<1, 1>>>(nullptr, 0);
  fill_kernel<<<1, 1>>>(nullptr, 0, 0, 0);
  multiply_kernel<<<1, 1>>>(nullptr, 0, 0);
  check(cudaGetLastError(), "launching the tests' kernels");
  (void)mismatches(nullptr, the_counter().on_device, sizeof(unsigned long long), 0);
  check(cudaDeviceSynchronize(), "running the tests' kernels");
  return std::make_shared<int>(0);
}

std::size_t free_memory() {
  std::size_t unused = 0;
  std::size_t total = 0;
  check(cudaMemGetInfo(&unused, &total), "cudaMemGetInfo");
  return unused;
}

bool may_refuse_ranks() { return true; }

bool adds_bytes_of_floats() {
  int major = 0;
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0), "cudaDeviceGetAttribute");
  return major >= 9;
}

void hold(cudaStream_t stream, int* opened, std::uint64_t limit) {
  hold_kernel<<<1, 1, 0, stream>>>(opened, limit);
  check(cudaGetLastError(), "hold");
}

void fill(cudaStream_t stream, void* memory, std::size_t bytes, std::uint64_t seed, std::uint64_t first) {
  if (bytes != 0) {
    fill_kernel<<<blocks_for(bytes, 4096), threads, 0, stream>>>(static_cast<unsigned char*>(memory), bytes, seed,
                                                                 first);
    check(cudaGetLastError(), "fill");
  }
}

std::uint64_t mismatches(cudaStream_t stream, const void* memory, std::size_t bytes, std::uint64_t seed,
                         std::uint64_t first) {
  if (bytes == 0) {
    return 0;
  }
  const counter& found = the_counter();
  check(cudaMemsetAsync(found.on_device, 0, sizeof(*found.on_device), stream), "cudaMemsetAsync");
  mismatches_kernel<<<blocks_for(bytes, 4096), threads, 0, stream>>>(static_cast<const unsigned char*>(memory), bytes,
                                                                     seed, first, found.on_device);
  check(cudaGetLastError(), "mismatches");
  check(cudaMemcpyAsync(found.on_host, found.on_device, sizeof(*found.on_host), cudaMemcpyDeviceToHost, stream),
        "cudaMemcpyAsync");
  check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  return *found.on_host;
}

void multiply(cudaStream_t stream, float* numbers, std::size_t count, float factor) {
  if (count != 0) {
    multiply_kernel<<<blocks_for(count, count), threads, 0, stream>>>(numbers, count, factor);
    check(cudaGetLastError(), "multiply");
  }
}

graph::graph(cudaStream_t stream, const std::function<void()>& body) {
  // The capturing thread's calls only: others may go on, as hfcomm's own do.
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  cudaGraph_t captured = nullptr;
  try {
    body();
  } catch (...) {
    (void)cudaStreamEndCapture(stream, &captured);
    throw;
  }
  check(cudaStreamEndCapture(stream, &captured), "cudaStreamEndCapture");
  cudaGraphExec_t executable = nullptr;
  const cudaError_t made = cudaGraphInstantiateWithFlags(&executable, captured, 0);
  (void)cudaGraphDestroy(captured);
  check(made, "cudaGraphInstantiateWithFlags");
  made_ = std::shared_ptr<void>(executable,
                                [](void* old) { (void)cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(old)); });
}

void graph::launch(cudaStream_t stream) const {
  check(cudaGraphLaunch(static_cast<cudaGraphExec_t>(made_.get()), stream), "cudaGraphLaunch");
}

}  // namespace gpu
