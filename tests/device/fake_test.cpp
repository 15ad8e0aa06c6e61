// SPDX-License-Identifier: MIT
// The test double itself: streams, events, captures, memory, counters.
#include <doctest/doctest.h>

#include <chrono>
#include <cstring>
#include <string>
#include <vector>

#include "fake_ranks.hpp"

namespace {

using namespace fake_ranks;

TEST_CASE("fake CUDA: calls without an installed fake are errors") {
  int device = 0;
  CHECK(fake_cuda::runtime_table().cudaGetDevice(&device) == cudaErrorCudartUnloading);
  CHECK(fake_cuda::nccl_table().ncclGroupStart() == ncclInternalError);
}

TEST_CASE("fake CUDA: the current device belongs to the thread") {
  const fake_cuda::install fake;
  int count = 0;
  CHECK(runtime().cudaGetDeviceCount(&count) == cudaSuccess);
  CHECK(count == 8);
  fake_cuda::set_device_count(2);
  CHECK(runtime().cudaSetDevice(2) == cudaErrorInvalidDevice);
  CHECK(runtime().cudaGetLastError() == cudaErrorInvalidDevice);
  CHECK(runtime().cudaGetLastError() == cudaSuccess);
  on_ranks(2, [](int rank) {
    int device = -1;
    CHECK(runtime().cudaGetDevice(&device) == cudaSuccess);
    CHECK(device == rank);
  });
  int device = -1;
  CHECK(runtime().cudaGetDevice(&device) == cudaSuccess);
  CHECK(device == 0);
  char bus[16];
  CHECK(runtime().cudaDeviceGetPCIBusId(bus, sizeof(bus), 1) == cudaSuccess);
  CHECK(std::string(bus) == "0000:11:00.0");
}

TEST_CASE("fake CUDA: memory is classified by its address") {
  const fake_cuda::install fake;
  cudaPointerAttributes facts{};
  const auto type_of = [&](const void* pointer) {
    CHECK(runtime().cudaPointerGetAttributes(&facts, pointer) == cudaSuccess);
    return facts.type;
  };
  REQUIRE(runtime().cudaSetDevice(3) == cudaSuccess);
  void* device = nullptr;
  void* host = nullptr;
  void* symmetric = nullptr;
  REQUIRE(runtime().cudaMalloc(&device, 100) == cudaSuccess);
  REQUIRE(runtime().cudaHostAlloc(&host, 100, 0) == cudaSuccess);
  REQUIRE(nccl().ncclMemAlloc(&symmetric, 100) == ncclSuccess);
  auto* bytes = static_cast<unsigned char*>(device);
  CHECK(bytes[99] == 0xCD);
  CHECK(type_of(bytes + 99) == cudaMemoryTypeDevice);
  CHECK(facts.device == 3);
  CHECK(type_of(bytes + 100) == cudaMemoryTypeUnregistered);
  CHECK(type_of(&facts) == cudaMemoryTypeUnregistered);
  CHECK(type_of(nullptr) == cudaMemoryTypeUnregistered);
  CHECK(type_of(host) == cudaMemoryTypeHost);
  CHECK(type_of(symmetric) == cudaMemoryTypeDevice);
  CHECK(fake_cuda::live().allocations == 3);
  CHECK(runtime().cudaFree(bytes + 1) == cudaErrorInvalidValue);
  CHECK(runtime().cudaFree(host) == cudaErrorInvalidValue);
  CHECK(runtime().cudaFree(symmetric) == cudaErrorInvalidValue);
  CHECK(runtime().cudaFreeHost(device) == cudaErrorInvalidValue);
  CHECK(runtime().cudaFree(device) == cudaSuccess);
  CHECK(bytes[99] == 0xDD);
  CHECK(runtime().cudaFree(device) == cudaErrorInvalidValue);
  CHECK(type_of(device) == cudaMemoryTypeUnregistered);
  CHECK(runtime().cudaFreeHost(host) == cudaSuccess);
  CHECK(nccl().ncclMemFree(symmetric) == ncclSuccess);
  CHECK(nccl().ncclMemFree(symmetric) == ncclUnhandledCudaError);
  CHECK(runtime().cudaFree(nullptr) == cudaSuccess);
  CHECK(fake_cuda::live() == fake_cuda::live_objects{});
}

TEST_CASE("fake CUDA: host memory is registered once, and unregistered by its beginning") {
  const fake_cuda::install fake;
  std::vector<unsigned char> memory(4096);
  cudaPointerAttributes facts{};
  CHECK(runtime().cudaHostUnregister(memory.data()) == cudaErrorHostMemoryNotRegistered);
  CHECK(runtime().cudaHostRegister(nullptr, 10, 0) == cudaErrorInvalidValue);
  CHECK(runtime().cudaHostRegister(memory.data(), 0, 0) == cudaErrorInvalidValue);
  CHECK(runtime().cudaHostRegister(memory.data(), 10, 1U << 20) == cudaErrorInvalidValue);
  REQUIRE(runtime().cudaHostRegister(memory.data() + 100, 1000, cudaHostRegisterPortable) == cudaSuccess);
  CHECK(runtime().cudaPointerGetAttributes(&facts, memory.data() + 1099) == cudaSuccess);
  CHECK(facts.type == cudaMemoryTypeHost);
  CHECK(facts.hostPointer == memory.data() + 1099);
  CHECK(runtime().cudaPointerGetAttributes(&facts, memory.data() + 1100) == cudaSuccess);
  CHECK(facts.type == cudaMemoryTypeUnregistered);
  for (const std::size_t first : {0U, 99U, 100U, 1099U}) {
    CHECK(runtime().cudaHostRegister(memory.data() + first, 2, 0) ==
          (first == 0 ? cudaSuccess : cudaErrorHostMemoryAlreadyRegistered));
  }
  CHECK(runtime().cudaHostUnregister(memory.data()) == cudaSuccess);
  CHECK(runtime().cudaHostRegister(memory.data(), 4096, 0) == cudaErrorHostMemoryAlreadyRegistered);
  CHECK(fake_cuda::live().registered_ranges == 1);
  CHECK(fake_cuda::live().allocations == 0);
  CHECK(runtime().cudaHostUnregister(memory.data() + 101) == cudaErrorHostMemoryNotRegistered);
  CHECK(runtime().cudaFreeHost(memory.data() + 100) == cudaErrorInvalidValue);
  CHECK(runtime().cudaHostUnregister(memory.data() + 100) == cudaSuccess);
  CHECK(runtime().cudaHostUnregister(memory.data() + 100) == cudaErrorHostMemoryNotRegistered);
  CHECK(fake_cuda::live().registered_ranges == 0);
}

TEST_CASE("fake CUDA: copies take their time, are logged, and need their memory until they end") {
  const fake_cuda::install fake;
  const stream work;
  const device_array<int> device(1, 7);
  std::vector<int> host(1, 3);
  REQUIRE(runtime().cudaHostRegister(host.data(), sizeof(int), 0) == cudaSuccess);
  fake_cuda::set_copy_time(std::chrono::milliseconds(20));
  REQUIRE(runtime().cudaMemcpyAsync(host.data(), device.get(), sizeof(int), cudaMemcpyDeviceToHost, work) ==
          cudaSuccess);
  CHECK(fake_cuda::copies(0).size() == 1);
  CHECK(fake_cuda::copies(0).front().kind == cudaMemcpyDeviceToHost);
  CHECK(fake_cuda::copies(0).front().bytes == sizeof(int));
  CHECK(fake_cuda::copies(1).empty());
  work.wait();
  CHECK(host.front() == 7);
  host.front() = 5;
  REQUIRE(runtime().cudaMemcpyAsync(device.get(), host.data(), sizeof(int), cudaMemcpyHostToDevice, work) ==
          cudaSuccess);
  CHECK(runtime().cudaHostUnregister(host.data()) == cudaSuccess);
  work.wait();
  CHECK(fake_cuda::illegal_accesses() == 1);
  CHECK(device[0] == 7);
}

TEST_CASE("fake CUDA: a stream does its work in order on another thread") {
  const fake_cuda::install fake;
  latch go;
  std::vector<int> order;
  {
    const stream one;
    device_array<int> data(4, 7);
    std::vector<int> copy(4);
    fake_cuda::launch(one, [&] { go.wait(); });
    fake_cuda::launch(one, [&] { order.push_back(1); });
    CHECK(runtime().cudaMemsetAsync(data.get(), 0, 2 * sizeof(int), one) == cudaSuccess);
    CHECK(runtime().cudaMemcpyAsync(copy.data(), data.get(), 4 * sizeof(int), cudaMemcpyDeviceToHost, one) ==
          cudaSuccess);
    fake_cuda::launch(one, [&] { order.push_back(2); });
    CHECK(runtime().cudaStreamQuery(one) == cudaErrorNotReady);
    CHECK(copy == std::vector{0, 0, 0, 0});
    go.open();
    one.wait();
    CHECK(runtime().cudaStreamQuery(one) == cudaSuccess);
    CHECK(order == std::vector{1, 2});
    CHECK(copy == std::vector{0, 0, 7, 7});
    CHECK(runtime().cudaMemcpyAsync(copy.data(), &go, 4, cudaMemcpyDeviceToHost, one) == cudaErrorInvalidValue);
    CHECK(runtime().cudaMemcpyAsync(data.get(), copy.data(), 17, cudaMemcpyHostToDevice, one) == cudaErrorInvalidValue);
    CHECK(runtime().cudaMemsetAsync(copy.data(), 0, 4, one) == cudaErrorInvalidValue);
  }
  cudaStream_t gone = nullptr;
  {
    const stream two;
    gone = two;
  }
  CHECK(runtime().cudaStreamQuery(gone) == cudaErrorInvalidResourceHandle);
}

TEST_CASE("fake CUDA: a destroyed stream completes its work") {
  const fake_cuda::install fake;
  latch go;
  latch done;
  {
    const stream one;
    fake_cuda::launch(one, [&] { go.wait(); });
    fake_cuda::launch(one, [&] { done.open(); });
  }
  CHECK(fake_cuda::live().streams == 0);
  go.open();
  done.wait();
}

TEST_CASE("fake CUDA: freeing memory waits for the device's earlier work, and later accesses are errors") {
  const fake_cuda::install fake;
  const stream one;
  bool used = false;
  void* gone = nullptr;
  {
    device_array<int> data(4);
    gone = data.get();
    fake_cuda::launch(one, [&] { used = true; });
    CHECK(runtime().cudaMemsetAsync(gone, 0, 16, one) == cudaSuccess);
  }
  CHECK(used);
  CHECK(fake_cuda::illegal_accesses() == 0);
  CHECK(runtime().cudaMemsetAsync(gone, 0, 16, one) == cudaErrorInvalidValue);
}

TEST_CASE("fake CUDA: the time between two events is that of the stream's work") {
  const fake_cuda::install fake;
  const stream one;
  const event start;
  const event end;
  float milliseconds = -1;
  CHECK(runtime().cudaEventElapsedTime(&milliseconds, start, end) == cudaErrorInvalidResourceHandle);
  CHECK(runtime().cudaEventRecord(start, one) == cudaSuccess);
  fake_cuda::launch(one, [] { std::this_thread::sleep_for(std::chrono::milliseconds(5)); });
  CHECK(runtime().cudaEventRecord(end, one) == cudaSuccess);
  CHECK(runtime().cudaEventSynchronize(end) == cudaSuccess);
  CHECK(runtime().cudaEventElapsedTime(&milliseconds, start, end) == cudaSuccess);
  CHECK(milliseconds >= 5);
}

TEST_CASE("fake CUDA: the legacy default stream and blocking streams wait for each other, nonblocking ones do not") {
  const fake_cuda::install fake;
  latch go;
  const stream blocking(cudaStreamDefault);
  const stream free;
  bool first = false;
  bool second = false;
  fake_cuda::launch(blocking, [&] {
    go.wait();
    first = true;
  });
  fake_cuda::launch(nullptr, [&] {
    CHECK(first);
    second = true;
  });
  fake_cuda::launch(blocking, [&] { CHECK(second); });
  fake_cuda::launch(free, [] {});
  free.wait();
  CHECK(runtime().cudaStreamQuery(nullptr) == cudaErrorNotReady);
  go.open();
  CHECK(runtime().cudaStreamSynchronize(nullptr) == cudaSuccess);
  blocking.wait();
}

TEST_CASE("fake CUDA: an event stands for a place in a stream") {
  const fake_cuda::install fake;
  const stream one;
  const stream two;
  const stream three;
  const event mark;
  CHECK(runtime().cudaEventQuery(mark) == cudaSuccess);
  CHECK(runtime().cudaEventSynchronize(mark) == cudaSuccess);
  CHECK(runtime().cudaStreamWaitEvent(two, mark, 0) == cudaSuccess);  // never recorded: no wait
  two.wait();

  latch first;
  latch second;
  bool first_done = false;
  fake_cuda::launch(one, [&] {
    first.wait();
    first_done = true;
  });
  CHECK(runtime().cudaEventRecord(mark, one) == cudaSuccess);
  CHECK(runtime().cudaStreamWaitEvent(two, mark, 0) == cudaSuccess);
  fake_cuda::launch(two, [&] { CHECK(first_done); });
  fake_cuda::launch(one, [&] { second.wait(); });
  CHECK(runtime().cudaEventRecord(mark, one) == cudaSuccess);  // who waits already keeps the old place
  CHECK(runtime().cudaStreamWaitEvent(three, mark, 0) == cudaSuccess);
  CHECK(runtime().cudaEventQuery(mark) == cudaErrorNotReady);
  first.open();
  two.wait();
  CHECK(runtime().cudaStreamQuery(three) == cudaErrorNotReady);
  second.open();
  CHECK(runtime().cudaEventSynchronize(mark) == cudaSuccess);
  three.wait();
  CHECK(runtime().cudaEventQuery(mark) == cudaSuccess);

  REQUIRE(runtime().cudaSetDevice(1) == cudaSuccess);
  const event elsewhere;
  CHECK(runtime().cudaEventRecord(elsewhere, one) == cudaErrorInvalidResourceHandle);
  CHECK(fake_cuda::live().events == 2);
}

TEST_CASE("fake CUDA: a capture records its streams' work, and each launch runs it") {
  const fake_cuda::install fake;
  const stream one;
  const stream two;
  const event fork;
  const event joined;
  std::vector<int> order;
  const auto capturing = [](cudaStream_t which) {
    auto status = cudaStreamCaptureStatusNone;
    CHECK(runtime().cudaStreamIsCapturing(which, &status) == cudaSuccess);
    return status == cudaStreamCaptureStatusActive;
  };
  fake_cuda::begin_capture(one);
  fake_cuda::launch(one, [&] { order.push_back(1); });
  CHECK(runtime().cudaEventRecord(fork, one) == cudaSuccess);
  CHECK(capturing(one));
  CHECK_FALSE(capturing(two));
  CHECK(runtime().cudaStreamWaitEvent(two, fork, 0) == cudaSuccess);
  CHECK(capturing(two));
  fake_cuda::launch(two, [&] { order.push_back(2); });
  CHECK(runtime().cudaEventRecord(joined, two) == cudaSuccess);
  CHECK(runtime().cudaStreamWaitEvent(one, joined, 0) == cudaSuccess);
  fake_cuda::launch(one, [&] { order.push_back(3); });
  const auto graph = fake_cuda::end_capture(one);
  CHECK_FALSE(capturing(one));
  CHECK_FALSE(capturing(two));
  CHECK(graph.size() == 3);
  one.wait();
  CHECK(order.empty());
  graph.launch(two);
  graph.launch(two);
  two.wait();
  CHECK(order == std::vector{1, 2, 3, 1, 2, 3});
  CHECK(runtime().cudaEventQuery(fork) == cudaErrorCapturedEvent);
  CHECK(runtime().cudaEventSynchronize(fork) == cudaErrorCapturedEvent);
}

TEST_CASE("fake CUDA: calls that a capture does not allow invalidate it") {
  const fake_cuda::install fake;
  const stream one;
  const stream two;
  const event mark;
  const event fork;
  const auto expect_failure = [&] {
    CHECK_THROWS_AS((void)fake_cuda::end_capture(one), std::logic_error);
    one.wait();
  };
  SUBCASE("querying the stream") {
    fake_cuda::begin_capture(one);
    CHECK(runtime().cudaStreamQuery(one) == cudaErrorStreamCaptureUnsupported);
    expect_failure();
  }
  SUBCASE("waiting for the stream") {
    fake_cuda::begin_capture(one);
    CHECK(runtime().cudaStreamSynchronize(one) == cudaErrorStreamCaptureUnsupported);
    auto status = cudaStreamCaptureStatusNone;
    CHECK(runtime().cudaStreamIsCapturing(one, &status) == cudaSuccess);
    CHECK(status == cudaStreamCaptureStatusInvalidated);
    expect_failure();
  }
  SUBCASE("waiting for an event from outside") {
    CHECK(runtime().cudaEventRecord(mark, two) == cudaSuccess);
    fake_cuda::begin_capture(one);
    CHECK(runtime().cudaStreamWaitEvent(one, mark, 0) == cudaErrorStreamCaptureIsolation);
    expect_failure();
  }
  SUBCASE("not joining a forked stream") {
    fake_cuda::begin_capture(one);
    CHECK(runtime().cudaEventRecord(fork, one) == cudaSuccess);
    CHECK(runtime().cudaStreamWaitEvent(two, fork, 0) == cudaSuccess);
    fake_cuda::launch(two, [] {});
    expect_failure();
  }
  SUBCASE("using the default stream") {
    const stream blocking(cudaStreamDefault);
    fake_cuda::begin_capture(blocking);
    auto status = cudaStreamCaptureStatusNone;
    CHECK(runtime().cudaStreamIsCapturing(nullptr, &status) == cudaErrorStreamCaptureImplicit);
    CHECK(runtime().cudaStreamQuery(nullptr) == cudaErrorStreamCaptureImplicit);
    CHECK_THROWS_AS((void)fake_cuda::end_capture(blocking), std::logic_error);
  }
}

TEST_CASE("fake CUDA: calls are counted and fail on demand") {
  const fake_cuda::install fake;
  CHECK(fake_cuda::calls("cudaStreamSynchronize") == 0);
  const stream one;
  one.wait();
  one.wait();
  CHECK(fake_cuda::calls("cudaStreamSynchronize") == 2);
  CHECK(fake_cuda::live().streams == 1);
  fake_cuda::fail_call("cudaMalloc", 2, cudaErrorMemoryAllocation);
  fake_cuda::fail_call("cudaMalloc", 1, cudaErrorNoDevice, 5);
  void* memory = nullptr;
  CHECK(runtime().cudaMalloc(&memory, 8) == cudaSuccess);
  CHECK(runtime().cudaMalloc(&memory, 8) == cudaErrorMemoryAllocation);
  CHECK(runtime().cudaMalloc(&memory, 8) == cudaSuccess);
  CHECK(runtime().cudaGetLastError() == cudaErrorMemoryAllocation);
  CHECK(std::string(runtime().cudaGetErrorString(cudaErrorMemoryAllocation)) == "out of memory");
}

}  // namespace
