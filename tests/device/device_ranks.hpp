// SPDX-License-Identifier: MIT
#pragma once

#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <hfcomm/comm.hpp>
#include <hfcomm/nccl.hpp>
#include <hfcomm/testing.hpp>

#include <fake/fake_cuda.hpp>
#include "../multi_rank/ranks.hpp"

/// Helpers of the tests of the device plane: ranks as threads, each with a pretended device of its own.
namespace device_ranks {

using namespace hfcomm;
using multi_rank::as_index;
using multi_rank::each_of;
using multi_rank::error_of;
using multi_rank::rank_counts;

/// A rank's own stream, on its device.
class rank_stream {
 public:
  explicit rank_stream(const process_group& world) {
    const auto& api = cuda::runtime();
    REQUIRE(api.cudaSetDevice(world.rank()) == cudaSuccess);
    REQUIRE(api.cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, 0) == cudaSuccess);
  }
  rank_stream(const rank_stream&) = delete;
  rank_stream& operator=(const rank_stream&) = delete;
  ~rank_stream() { (void)cuda::runtime().cudaStreamDestroy(stream_); }

  operator stream_ref() const { return stream_; }  // NOLINT(*explicit*)
  [[nodiscard]] cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

template <class T, writable_device_range R>
void to_device(const std::vector<T>& values, R&& range, stream_ref stream) {
  copy(values, range, stream);
  REQUIRE(cuda::runtime().cudaStreamSynchronize(stream.get()) == cudaSuccess);  // `values` may end
}
template <class T>
device_buffer<T> on_device(const std::vector<T>& values, stream_ref stream) {
  device_buffer<T> made(values.size());
  to_device(values, made, stream);
  return made;
}

/// Returns the contents of the memory after all work on the stream.
template <device_range R>
auto on_host(const R& range, stream_ref stream) {
  std::vector<device_value_t<R>> values(range.size());
  copy(range, values, stream);
  REQUIRE(cuda::runtime().cudaStreamSynchronize(stream.get()) == cudaSuccess);
  return values;
}

inline bool says(const error& problem, std::string_view text) {
  return std::string_view(problem.what()).find(text) != std::string_view::npos;
}

/// Waits until the other ranks have broken the group.
inline void until_broken(const process_group& world) {
  while (!world.broken()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

/// Returns the text of the exception that `run_ranks` throws; empty without one.
inline std::string cause_of(int ranks, function_ref<void(const process_group&)> rank_main) {
  try {
    testing::run_ranks(ranks, rank_main);
  } catch (const std::exception& problem) {
    return problem.what();
  }
  return {};
}

/// Runs `rank_main(world, stream)` on `ranks` ranks over the double. Checks that no object of the double is left.
inline void run_devices(int ranks, function_ref<void(const process_group&, stream_ref)> rank_main,
                        const testing::run_ranks_options& options = {}) {
  testing::run_ranks(
      ranks,
      [&](const process_group& world) {
        const rank_stream stream(world);
        rank_main(world, stream_ref(stream));
      },
      options);
  auto left = fake_cuda::live();
  for (int turn = 0; turn < 1000 && left != fake_cuda::live_objects(); ++turn) {
    // A thread goes on to end what a teardown did not end in time.
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    left = fake_cuda::live();
  }
  CHECK(left.streams == 0);
  CHECK(left.events == 0);
  CHECK(left.allocations == 0);
  CHECK(left.communicators == 0);
  CHECK(left.registrations == 0);
  CHECK(left.red_ops == 0);
  CHECK(left.registered_ranges == 0);

  CHECK(fake_cuda::illegal_accesses() == 0);
}

/// The same with each number of ranks from `least` on, each on a fresh double.
inline void at_every_size(function_ref<void(const process_group&, stream_ref)> rank_main, int least = 1) {
  for (const int ranks : multi_rank::rank_counts_from(least)) {
    INFO("with ", ranks, " ranks");
    const fake_cuda::install fake;
    run_devices(ranks, rank_main);
  }
}

}  // namespace device_ranks
